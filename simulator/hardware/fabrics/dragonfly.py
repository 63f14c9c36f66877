"""Groups of routers, fully connected inside, with links between every pair of groups."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.links import FloatArray, IntArray, LinkTable
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
    minimal_share: Annotated[float, Field(ge=0, le=1)] | Literal["adaptive"] = Field(
        1.0,
        description="Part of the traffic between two groups on their direct links; the rest (Valiant) goes "
        "evenly over the other groups. adaptive: detours go over the groups that the job does not use, as much as "
        "loads all global links that a group sends over alike.",
    )
    groups: int | None = Field(
        default=None,
        gt=0,
        description="Groups of the whole machine, over which adaptive traffic goes where the job has only some of "
        "them; those of the job if left out.",
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
        used = middles[np.searchsorted(group_of_router, np.arange(num_groups))]
        idle = table.add_vertices("idle group", self._num_idle(num_groups))
        direct = self._wire_groups(used, idle, table)
        detours = np.arange(len(direct))[num_groups if self.minimal_share == "adaptive" else 0 :]

        def paths(source: IntArray, destination: IntArray, key: IntArray) -> list[Block]:
            here, there = router_of_port[source], router_of_port[destination]
            moving = np.nonzero(here != there)[0]
            from_group, to_group = group_of_router[here], group_of_router[there]
            flow = np.nonzero(from_group != to_group)[0]
            from_group, to_group = from_group[flow], to_group[flow]
            blocks: list[Block] = [(moving, local_out[here[moving]], 1.0)]
            minimal = self._minimal(from_group, to_group, num_groups, len(idle))
            straight, bent = minimal > 0.0, minimal < 1.0
            blocks.append((flow[straight], direct[from_group, to_group][straight], minimal[straight]))
            blocks += _detours(
                flow[bent], from_group[bent], to_group[bent], direct, detours, 1.0 - minimal[bent]
            )
            return [*blocks, (moving, local_in[there[moving]], 1.0)]

        return Wiring(
            routers[router_of_port], self.hop_latency, paths, bisection=self._bisection(ports, num_groups)
        )

    @property
    def _local_bundle(self) -> float:
        """All local links of one router; alone in its group it has none, and nothing to be held up by."""
        return self.local_bandwidth * max(self.routers_per_group - 1, 1)

    def _num_idle(self, num_groups: int) -> int:
        """Groups of the machine that carry traffic of a job without being part of it."""
        adaptive = self.minimal_share == "adaptive" and num_groups > 1
        return max(0, (self.groups or 0) - num_groups) if adaptive else 0

    def _minimal(self, from_group: IntArray, to_group: IntArray, num_groups: int, idle: int) -> FloatArray:
        """Part of each flow between two groups on their own links.

        A group that sends to k others alike loads its links alike with k / (k + idle groups) of it on these.
        """
        if self.minimal_share != "adaptive":
            return np.full(len(from_group), self.minimal_share if num_groups > 2 else 1.0)
        pairs = np.unique(from_group * num_groups + to_group)
        reached = np.bincount(pairs // num_groups, minlength=num_groups)[from_group]
        return reached / (reached + idle)

    def _wire_groups(self, used: IntArray, idle: IntArray, table: LinkTable) -> IntArray:
        """[group, group] the bundle of direct links from one group to another, of which one at least is used."""
        vertex = np.concatenate([used, idle])
        num_groups = len(vertex)
        direct = np.full((num_groups, num_groups), -1, dtype=np.int64)
        wired = ~np.eye(num_groups, dtype=bool)
        wired[len(used) :, len(used) :] = False
        a, b = np.nonzero(wired)
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
    flow: IntArray,
    from_group: IntArray,
    to_group: IntArray,
    direct: IntArray,
    via: IntArray,
    share: FloatArray,
) -> list[Block]:
    """Two global links over each of the groups `via` that is neither source nor destination, all equally."""
    row, column = np.nonzero((via != from_group[:, None]) & (via != to_group[:, None]))
    middle = via[column]
    each = share[row] / np.bincount(row, minlength=len(flow))[row]
    return [
        (flow[row], direct[from_group[row], middle], each),
        (flow[row], direct[middle, to_group[row]], each),
    ]
