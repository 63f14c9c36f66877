"""Nodes in a grid that wraps around, each linked to its neighbours in every dimension."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

from pydantic import Field

from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric


@FABRICS.register("torus")
class Torus(Fabric):
    """A torus of nodes with dimension-ordered routes."""

    kind: Literal["torus"] = Field("torus", description="Nodes in a wrapped-around grid.")
    dimensions: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="Nodes along each dimension; their product is what the torus holds."
    )
    bandwidth: BytesPerSecond = Field(description="Of one link between neighbours, per direction.")
    hop_latency: Seconds = Field(description="From one node to its neighbour, one way.")

    @property
    def max_nodes(self) -> int:
        return prod(self.dimensions)
