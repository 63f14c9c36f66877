"""A leaf per rail: NIC i of every node of a unit on leaf i, units joined by spines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.hardware.fabrics.fabric import FABRICS
from simulator.hardware.fabrics.leaf_spine import TwoLayers


@FABRICS.register("rail_optimized")
class RailOptimized(TwoLayers):
    """Scalable units with one leaf per rail; traffic that stays on its rail within a unit meets one switch."""

    kind: Literal["rail_optimized"] = Field(
        "rail_optimized", description="NIC i of each node on leaf (rail) i."
    )
    nodes_per_unit: int = Field(ge=1, description="Nodes that share one set of rail leaves.")
