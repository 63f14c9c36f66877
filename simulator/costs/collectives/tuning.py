"""Which protocol does NCCL's own model think fastest on one node, whether it is or not?

NCCL estimates every algorithm and protocol as latency + size / bandwidth from tables of its own and takes the least
(src/graph/tuning.cc, versions 2.27 to 2.29). Latencies are the same for all GPUs; bandwidths are what it makes of the
links it found (`Tuner`).
"""

from __future__ import annotations

from pydantic import Field

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


class Tuner(Description):
    """Bandwidths in NCCL's tuning model: not what the links achieve."""

    ring: BytesPerSecond = Field(description="Of all channels of a ring together.")
    ll: BytesPerSecond = Field(description="Most that LL is credited with on one node.")
    ll128: BytesPerSecond = Field(description="Most that LL128 is credited with over all channels.")
    in_network: Fraction | None = Field(
        default=None, description="Of the ring's bandwidth, what in-network reduction is credited with."
    )

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
