"""Direct: every rank sends each other rank its part at once (all-to-all)."""

from __future__ import annotations

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """Chunk s * n + d is what rank s has for rank d."""
    n = len(layout)
    pairs = [(s, d) for s in range(n) for d in range(n) if s != d]
    return Schedule(1.0 / n, tuple(Transfer(0, s, d, s * n + d, False) for s, d in pairs))


@algorithm("direct", ("all_to_all",), schedule=schedule)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """size/n per ordered pair; a rank's own part stays local.

    All messages travel at once, so the network's latency counts once; each peer is one more message to start.
    """
    n = group.num_ranks
    return Movement("direct", size / n, n - 1, int(group.num_nodes > 1), local=size / n)
