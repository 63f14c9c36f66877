"""One switch, to which every NIC of every node is attached."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.quantities import Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric


@FABRICS.register("single_switch")
class SingleSwitch(Fabric):
    """One non-blocking switch between all nodes."""

    kind: Literal["single_switch"] = Field("single_switch", description="One switch for all nodes.")
    hop_latency: Seconds = Field(description="Through the switch, one way.")
