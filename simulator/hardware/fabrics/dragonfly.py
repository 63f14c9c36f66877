"""Groups of routers, fully connected inside, with links between every pair of groups."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric


@FABRICS.register("dragonfly")
class Dragonfly(Fabric):
    """A dragonfly with minimal routes: at most one local, one global and one more local link."""

    kind: Literal["dragonfly"] = Field(
        "dragonfly", description="Groups of routers, all-to-all inside and between."
    )
    nodes_per_router: int = Field(ge=1, description="Nodes attached to one router.")
    routers_per_group: int = Field(ge=1, description="Routers in one group, each linked to all others of it.")
    local_bandwidth: BytesPerSecond = Field(description="Between two routers of a group, per direction.")
    global_bandwidth: BytesPerSecond = Field(description="Between two groups in all, per direction.")
    hop_latency: Seconds = Field(description="Through one router, one way.")
    global_latency: Seconds = Field(0.0, description="Added by the long cable of a global link, one way.")
