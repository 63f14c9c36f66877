"""Gloo's all-to-all: every message posted at once, of which half wait for the message that goes the other way.

A rank posts, for i = 1, 2, ..., a send to the rank i after it and a receive from the rank i before it. A message
leaves when its receiver has asked for it. Of two ranks, the one that comes later finds the other's request waiting,
so its message leaves at once; where it posts its own request only after that (the other rank is at most half way
round), the request queues behind the message on the one connection that the pair has. Found in gloo's alltoall.cc
and transport/tcp/pair.cc (2026-04).
"""

from __future__ import annotations

from simulator.costs.collectives import direct
from simulator.costs.collectives.algorithm import Movement, algorithm
from simulator.costs.collectives.group import GroupShape


def rounds(num_ranks: int) -> int:
    """Message times until all have arrived, in whatever order the ranks came: 2, 5, 11 of 2, 4, 8 ranks."""
    return -(-3 * (num_ranks - 1) // 2)


@algorithm("gloo_all_to_all", ("all_to_all",), schedule=direct.schedule)
def all_to_all(op: str, size: float, group: GroupShape) -> Movement:
    """size/n per ordered pair; the busiest link is idle a third of the time (half of it with two ranks)."""
    n = group.num_ranks
    stretch = rounds(n) / (n - 1)
    return Movement("direct", size / n, n - 1, int(group.num_nodes > 1), local=size / n, stretch=stretch)
