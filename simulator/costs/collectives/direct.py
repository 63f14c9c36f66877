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
    """size/n per ordered pair; a rank's own part stays local. Each further peer is one more message to
    start.
    """
    n, nodes = group.num_ranks, group.num_nodes
    return Movement("direct", size / n, group.ranks_per_node - 1, nodes - 1, local=size / n)
