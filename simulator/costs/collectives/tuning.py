"""Which protocol on one node, and which algorithm across nodes, does NCCL's own model think fastest, right or wrong?

NCCL estimates every algorithm and protocol as latency + size / bandwidth from tables of its own and takes the least
(src/graph/tuning.cc, versions 2.27 to 2.29). Latencies are the same for all GPUs; bandwidths are what it makes of the
links it found (`Tuner`).
"""

from __future__ import annotations

from functools import lru_cache
from math import floor, inf, log2

from pydantic import Field

from simulator.costs.collectives.group import GroupShape
from simulator.description.base import Description
from simulator.description.quantities import BytesPerSecond, Fraction

BASE = {"ll": 6.6e-6, "ll128": 14.0e-6, "simple": 8.4e-6}
"""Seconds that a ring takes at least, by protocol."""
HOP = {"ll": 0.6e-6, "ll128": 1.9e-6, "simple": 3.4e-6}
"""Seconds of each of its steps over NVLink."""
LL128_PAYLOAD = 0.92
"""What LL128 leaves of a ring's bandwidth (120 of 128 bytes, rounded down)."""
IN_NETWORK = 25.0e-6
"""Seconds that an in-network reduction takes at least."""
LAPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Rounds of the ring, by operation; of others the tuner has no choice, or none that is modelled."""

NETWORK_HOP = {"ring": {"ll128": 4.0e-6, "simple": 14.0e-6}, "tree": {"ll128": 8.5e-6, "simple": 14.0e-6}}
"""Seconds of a step between nodes; of one member per node always the tree's."""
POSTED_HOP = {"ll128": 2.0e-6, "simple": 6.0e-6}
"""Seconds of a ring's step inside a node of a group that spans nodes, whose other members post to NICs meanwhile."""
TREE_HOP = {"ll128": 1.25e-6, "simple": 4.0e-6}
"""Seconds of a tree's step over NVLink."""
PLATEAU = 1.4
"""Factor on the latency of rings under simple across nodes."""
MEDIUM = {
    "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9),
    "simple": (*7 * (0.9,), 0.8, 0.7, 0.6, 0.6, *4 * (0.5,), 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}
"""What trees keep of their bandwidth, by the power of two of size / 64 bytes; all of it above."""
LARGEST = 40
"""Power of two of size / 64 bytes whose choice counts for all larger sizes."""


class NetworkTuner(Description):
    """Bandwidths in NCCL's tuning model per channel, of which it opens one over each NIC."""

    channel: BytesPerSecond = Field(description="Most that any is credited with: the GPU's PCIe link.")
    ll128: BytesPerSecond = Field(description="Most under LL128.")
    tree_of_two: BytesPerSecond = Field(description="Most in a tree of two nodes.")
    tree: BytesPerSecond = Field(description="Most in a tree of more nodes.")

    def ring_from(self, group: GroupShape, scale_up: float) -> float:
        """Bytes from which on a ring is credited with less time than a tree; infinity where it never is for good.

        `scale_up`: bytes/s with which all channels together are credited inside a node. LL is left out: at its
        sizes trees win by their latency. Where NCCL takes a ring between two ranges of trees (what trees lose
        comes in steps), it counts as a tree.
        """
        for power in range(LARGEST, -1, -1):
            low, high = 64.0 * 2.0**power, 128.0 * 2.0**power
            if self._ring(low, group) > self._tree(low, group, scale_up):
                while power < LARGEST and high > 1.001 * low:
                    middle = (low * high) ** 0.5
                    if self._ring(middle, group) > self._tree(middle, group, scale_up):
                        low = middle
                    else:
                        high = middle
                return high if power < LARGEST else inf
        return 0.0

    def _rate(self, group: GroupShape) -> float:
        """Bytes/s of a channel: its NIC's as the search for rings rounds it (48, 24, 12, ... of 50, 25, 12.5)."""
        return min(self.channel, 0.96 * group.nic_bandwidth / group.num_nics)

    def _ring(self, size: float, group: GroupShape) -> float:
        """Seconds under the better protocol."""
        between = 2 * (group.num_nodes - 1)
        steps = 2 * (group.num_ranks - 1)
        rate = self._rate(group)
        found = []
        for protocol, busy in (("ll128", min(LL128_PAYLOAD * rate, self.ll128)), ("simple", rate)):
            alone = "tree" if group.num_ranks == group.num_nodes else "ring"
            latency = BASE[protocol] + between * NETWORK_HOP[alone][protocol]
            latency += (steps - between) * POSTED_HOP[protocol]
            latency *= PLATEAU if protocol == "simple" else 1.0
            found.append(latency + size * steps / group.num_ranks / (group.num_nics * busy))
        return min(found)

    def _tree(self, size: float, group: GroupShape, scale_up: float) -> float:
        """Seconds under the better protocol."""
        rate = self._rate(group)
        if group.num_nodes == 2:  # each NIC carries half of both trees: the search counts what is inside
            rate = min(2.0 * rate, scale_up / group.num_nics)
        most = self.tree_of_two if group.num_nodes == 2 else self.tree
        rate = min(0.92 * rate, most)
        found = []
        for protocol, busy in (("ll128", min(120 / 128 * rate, self.ll128)), ("simple", rate)):
            hops = (group.num_ranks // group.num_nodes - 1) * TREE_HOP[protocol]
            hops += floor(log2(group.num_nodes)) * NETWORK_HOP["tree"][protocol]
            power = max(0, floor(log2(max(size, 64.0) / 64.0)))
            loss = MEDIUM[protocol][power] if power < len(MEDIUM[protocol]) else 1.0
            found.append(BASE[protocol] + 2 * hops + 2.0 * size / (group.num_nics * busy * loss))
        return min(found)


@lru_cache(maxsize=1024)
def _ring_from(network: NetworkTuner, group: GroupShape, scale_up: float) -> float:
    return network.ring_from(group, scale_up)


class Tuner(Description):
    """Bandwidths in NCCL's tuning model: not what the links achieve."""

    ring: BytesPerSecond = Field(description="Of all channels of a ring together.")
    ll: BytesPerSecond = Field(description="Most that LL is credited with on one node.")
    ll128: BytesPerSecond = Field(description="Most that LL128 is credited with over all channels.")
    in_network: Fraction | None = Field(
        default=None, description="Of the ring's bandwidth, what in-network reduction is credited with."
    )
    network: NetworkTuner | None = Field(
        default=None,
        description="What it goes by across nodes; null: rings and trees are taken as they are faster.",
    )

    def prefers_ring(self, size: float, group: GroupShape) -> bool:
        """Whether it takes a ring, not a tree, for an all-reduce of `size` bytes across nodes."""
        return self.network is not None and size >= _ring_from(self.network, group, self.ring)

    def protocol(self, op: str, size: float, num_ranks: int, in_network: bool) -> str | None:
        """The protocol it takes for `size` bytes; None for an operation without a choice.

        `in_network`: whether the group may reduce in the switch, which counts as simple.
        """
        estimates = self._estimates(op, num_ranks, in_network)
        if not estimates:
            return None
        return min(estimates, key=lambda one: one[1] + size / one[2])[0]

    def _estimates(self, op: str, num_ranks: int, in_network: bool) -> list[tuple[str, float, float]]:
        """(protocol, seconds, bytes/s) of what it weighs up."""
        if op not in LAPS:
            return []
        steps = LAPS[op] * (num_ranks - 1)
        share = num_ranks / steps
        busy = {
            "ll": min(self.ll, self.ring / 2),
            "ll128": min(LL128_PAYLOAD * self.ring, self.ll128),
            "simple": self.ring,
        }
        found = [(name, BASE[name] + steps * HOP[name], rate * share) for name, rate in busy.items()]
        if op == "all_reduce" and in_network and self.in_network is not None:
            reached = 2 * (num_ranks - 1) / num_ranks * self.in_network * self.ring
            found.append(("simple", IN_NETWORK, reached * share))
        return found
