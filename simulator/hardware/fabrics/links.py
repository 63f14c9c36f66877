"""Any network at all, given link by link."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric


class Link(Description):
    """One cable. An end is a node (its number, from 0) or a switch (any name)."""

    source: int | str = Field(alias="from", description="Node number, or name of a switch.")
    target: int | str = Field(alias="to", description="Node number, or name of a switch.")
    bandwidth: BytesPerSecond = Field(description="Per direction.")
    latency: Seconds = Field(description="One way, the far end included.")
    both_ways: bool = Field(True, description="false: the link carries only from -> to.")


@FABRICS.register("links")
class Links(Fabric):
    """An explicit list of links; routes are shortest paths."""

    kind: Literal["links"] = Field("links", description="An explicit list of links.")
    links: tuple[Link, ...] = Field(min_length=1, description="Every link of the network.")
    ecmp: Literal["even", "hashed"] = Field(
        "even",
        description="even: flows split over equal shortest paths; hashed: each takes one, drawn by seed.",
    )
    seed: int = Field(0, description="Seed of the hash that picks a path where ecmp is hashed.")

    @property
    def max_nodes(self) -> int:
        ends = [end for link in self.links for end in (link.source, link.target)]
        return 1 + max((end for end in ends if isinstance(end, int)), default=-1)
