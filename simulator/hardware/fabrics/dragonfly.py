"""Groups of routers, fully connected inside, with links between every pair of groups."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.links import IntArray, LinkTable
from simulator.hardware.wiring import Block, Ports, Wiring


@FABRICS.register("dragonfly")
class Dragonfly(Fabric):
    """A dragonfly, after Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly" (2008)."""

    kind: Literal["dragonfly"] = Field(
        "dragonfly", description="Groups of routers, all-to-all inside and between."
    )
    nodes_per_router: int = Field(ge=1, description="Nodes attached to one router.")
    routers_per_group: int = Field(ge=1, description="Routers in one group, each linked to all others of it.")
    local_bandwidth: BytesPerSecond = Field(description="Between two routers of a group, per direction.")
    global_bandwidth: BytesPerSecond = Field(description="Between two groups in all, per direction.")
    hop_latency: Seconds = Field(description="Through one router, one way.")
    global_latency: Seconds = Field(0.0, description="Added by the long cable of a global link, one way.")
    minimal_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Part of the traffic between two groups on their direct links; the rest (Valiant) goes "
        "evenly over the other groups.",
    )

    @property
    def nodes_per_neighbourhood(self) -> int:
        return self.nodes_per_router * self.routers_per_group

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """Two routers on the way within a group, three to another group.

        Adaptive routing spreads a router's local traffic over all its local links, so these act as one bundle
        out of and one into each router. All traffic to another router or group crosses the bundles of both
        ends (of the traffic to other groups 1 in routers_per_group starts at the right router already:
        pessimistic by that).
        """
        router_of_port = ports.place // self.nodes_per_router
        group_of_router = np.arange(int(router_of_port.max()) + 1) // self.routers_per_group
        num_groups = int(group_of_router[-1]) + 1
        routers = table.add_vertices("router", len(group_of_router))
        middles = table.add_vertices("group", num_groups)[group_of_router]
        # A hop is counted where a link enters a router; alone in its group, a router is not entered again.
        hop = self.hop_latency if self.routers_per_group > 1 else 0.0
        local_out = table.add_links("local_out", routers, middles, self._local_bundle, hop)
        local_in = table.add_links("local_in", middles, routers, self._local_bundle)
        direct = self._wire_groups(num_groups, middles, group_of_router, table)
        minimal = self.minimal_share if num_groups > 2 else 1.0

        def paths(source: IntArray, destination: IntArray, key: IntArray) -> list[Block]:
            here, there = router_of_port[source], router_of_port[destination]
            moving = np.nonzero(here != there)[0]
            from_group, to_group = group_of_router[here], group_of_router[there]
            flow = np.nonzero(from_group != to_group)[0]
            from_group, to_group = from_group[flow], to_group[flow]
            blocks: list[Block] = [(moving, local_out[here[moving]], 1.0)]
            if minimal > 0:
                blocks.append((flow, direct[from_group, to_group], minimal))
            if minimal < 1:
                blocks += _detours(flow, from_group, to_group, direct, 1.0 - minimal)
            return [*blocks, (moving, local_in[there[moving]], 1.0)]

        return Wiring(
            routers[router_of_port], self.hop_latency, paths, bisection=self._bisection(ports, num_groups)
        )

    @property
    def _local_bundle(self) -> float:
        """All local links of one router; alone in its group it has none, and nothing to be held up by."""
        return self.local_bandwidth * max(self.routers_per_group - 1, 1)

    def _wire_groups(
        self, num_groups: int, middles: IntArray, group_of_router: IntArray, table: LinkTable
    ) -> IntArray:
        """[group, group] the bundle of direct links from one group to another."""
        vertex = middles[np.searchsorted(group_of_router, np.arange(num_groups))]
        direct = np.full((num_groups, num_groups), -1, dtype=np.int64)
        a, b = np.nonzero(~np.eye(num_groups, dtype=bool))
        latency = self.hop_latency + self.global_latency
        direct[a, b] = table.add_links("global", vertex[a], vertex[b], self.global_bandwidth, latency)
        return direct

    def _bisection(self, ports: Ports, num_groups: int) -> float | None:
        """NICs, local bundles or global links between halves, the fewest; null unless groups are whole."""
        if (
            num_groups % 2
            or ports.num_nodes != num_groups * self.nodes_per_neighbourhood
            or not ports.in_order
        ):
            return None
        local = num_groups // 2 * self.routers_per_group * self._local_bundle
        return min(*ports.halves(), local, (num_groups // 2) ** 2 * self.global_bandwidth)


def _detours(
    flow: IntArray, from_group: IntArray, to_group: IntArray, direct: IntArray, share: float
) -> list[Block]:
    """Two global links over each group that is neither source nor destination, all equally."""
    via = np.arange(len(direct))
    row, middle = np.nonzero((via != from_group[:, None]) & (via != to_group[:, None]))
    each = share / (len(direct) - 2)
    return [
        (flow[row], direct[from_group[row], middle], each),
        (flow[row], direct[middle, to_group[row]], each),
    ]
