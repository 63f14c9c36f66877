"""Gloo's broadcast: a binomial tree whose ranks hand on the whole message, to all their children at once.

Read in gloo's broadcast.cc (2026-04).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape
from simulator.costs.collectives.patterns import Local, NodeBlocks, pattern


def children(rank: int, num_ranks: int) -> list[int]:
    """Whom a rank sends to: it differs from them in one bit above its own highest."""
    return [
        rank | 1 << bit
        for bit in range(rank.bit_length(), num_ranks.bit_length())
        if rank | 1 << bit < num_ranks
    ]


def parent(rank: int) -> int:
    """From whom a rank other than the first receives: it lacks that rank's highest bit."""
    return rank ^ 1 << rank.bit_length() - 1


@lru_cache(maxsize=256)
def last_arrival(num_ranks: int) -> tuple[int, int]:
    """(message times, hops) until the last rank has everything: children of one rank share its link.

    1, 3, 6 messages for 2, 4, 8 ranks.
    """
    arrival, depth = [0] * num_ranks, [0] * num_ranks
    for rank in range(num_ranks):
        below = children(rank, num_ranks)
        for child in below:
            arrival[child], depth[child] = arrival[rank] + len(below), depth[rank] + 1
    return max(arrival), max(depth)


@pattern("binomial")
def _binomial(blocks: NodeBlocks) -> Local:
    """`volume` along every edge of the binomial tree from the first rank."""
    edges = [(rank, child) for rank in range(blocks.num_ranks) for child in children(rank, blocks.num_ranks)]
    source, destination = np.array(edges, dtype=np.int64).T
    return [(source, destination, np.ones(len(edges)))]


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """A rank hands the message on in the round after it came."""
    n = len(layout)
    depth = [0] * n
    transfers = []
    for rank in range(n):
        for child in children(rank, n):
            depth[child] = depth[rank] + 1
            transfers.append(Transfer(depth[rank], rank, child, 0, False))
    return Schedule(1.0, tuple(sorted(transfers, key=lambda t: t.round)))


@algorithm("gloo_broadcast", ("broadcast",), schedule=schedule)
def broadcast(op: str, size: float, group: GroupShape) -> Movement:
    """The root's link carries size x its children, and the others' follow one after the other."""
    n, across = group.num_ranks, group.num_nodes > 1
    messages, hops = last_arrival(n)
    steps, network_steps = (0, hops) if across else (hops, 0)
    return Movement("binomial", size, steps, network_steps, stretch=messages / len(children(0, n)))
