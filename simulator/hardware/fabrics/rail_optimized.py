"""A leaf per rail: NIC i of every node of a unit on leaf i, units joined by spines."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from simulator.hardware.clos import wire_clos
from simulator.hardware.fabrics.fabric import FABRICS
from simulator.hardware.fabrics.leaf_spine import Layers
from simulator.hardware.links import LinkTable
from simulator.hardware.wiring import Ports, Wiring


@FABRICS.register("rail_optimized")
class RailOptimized(Layers):
    """Scalable units with one leaf per rail; traffic that stays on its rail within a unit meets one switch."""

    kind: Literal["rail_optimized"] = Field(
        "rail_optimized", description="NIC i of each node on leaf (rail) i."
    )
    nodes_per_unit: int = Field(ge=1, description="Nodes that share one set of rail leaves.")
    cross_rail: Literal["scale_up", "spine"] = Field(
        "scale_up",
        description="How traffic reaches another rail: handed to the GPU on that rail by the scale-up "
        "network (NCCL's PXN), or through the spines.",
    )

    @property
    def nodes_per_neighbourhood(self) -> int:
        return self.nodes_per_unit

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """Leaf (unit, rail) joins NIC `rail` of the unit's nodes: one hop; leaves meet in spines: three hops.

        With `cross_rail` "scale_up", traffic between rails first moves inside the source node to the GPU on
        the destination's rail; nodes whose GPUs are joined by PCIe alone, or that lack the rail, use the
        spines instead.
        """
        num_rails = int(ports.rail.max()) + 1
        # Nodes with fewer rails than others leave gaps in (unit, rail); leaves number those in use.
        slots = ports.place // self.nodes_per_unit * num_rails + ports.rail
        used, leaf_of_port = np.unique(slots, return_inverse=True)
        pod_of_leaf = None
        if self.nodes_per_pod is not None:
            pod_of_leaf = used // num_rails * self.nodes_per_unit // self.nodes_per_pod
        wires = wire_clos(ports, table, self.layers(leaf_of_port.astype(np.int64), pod_of_leaf))
        return replace(wires, rail_of_port=ports.rail if self.cross_rail == "scale_up" else None)
