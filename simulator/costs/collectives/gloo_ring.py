"""Gloo's rings: one, through the ranks in order; reduce-scatter is an all-reduce of which each rank keeps its part.

Read in gloo's allreduce.cc, allgather.cc and reduce.cc (2026-04) and in PyTorch 2.13's ProcessGroupGloo.
"""

from __future__ import annotations

import numpy as np

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape
from simulator.costs.collectives.patterns import Local, NodeBlocks, pattern

TWO_RANKS_GATHER = 1.5
"""All-gather of two ranks sends half-blocks before it asks for the other's: the request of the rank that comes
later waits behind its own half-block, on the one connection of the pair, so the other starts half a block late."""


@pattern("ring_down")
def ring_down(blocks: NodeBlocks) -> Local:
    """Every rank sends `volume` to the rank before it."""
    ranks = np.arange(blocks.num_ranks)
    return [(ranks, np.roll(ranks, 1), np.ones(len(ranks)))]


@pattern("ring_up")
def ring_up(blocks: NodeBlocks) -> Local:
    """Every rank sends `volume` to the rank after it."""
    ranks = np.arange(blocks.num_ranks)
    return [(ranks, np.roll(ranks, -1), np.ones(len(ranks)))]


@pattern("ring_down_gather")
def ring_down_gather(blocks: NodeBlocks) -> Local:
    """Every rank sends (n-1)/n x `volume` to the rank before it; then all but rank 0 send it their 1/n."""
    n = blocks.num_ranks
    (ring,) = ring_down(blocks)
    others = np.arange(1, n)
    return [(ring[0], ring[1], ring[2] * (n - 1) / n), (others, 0 * others, np.full(n - 1, 1.0 / n))]


def scattered(n: int) -> list[Transfer]:
    """Reduce-scatter downwards: afterwards rank r holds the sum of chunk r."""
    return [
        Transfer(step, rank, (rank - 1) % n, (rank + 1 + step) % n, True)
        for step in range(n - 1)
        for rank in range(n)
    ]


def all_reduce_schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """One chunk per rank: reduced downwards, then passed on downwards (segments of a chunk change times, not bytes)."""
    n = len(layout)
    gathered = [
        Transfer(n - 1 + step, rank, (rank - 1) % n, (rank + step) % n, False)
        for step in range(n - 1)
        for rank in range(n)
    ]
    return Schedule(1.0 / n, (*scattered(n), *gathered))


def all_gather_schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """Blocks travel upwards."""
    n = len(layout)
    moves = ((step, rank) for step in range(n - 1) for rank in range(n))
    return Schedule(1.0 / n, tuple(Transfer(s, r, (r + 1) % n, (r - s) % n, False) for s, r in moves))


def reduce_schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """The first half of an all-reduce, then every rank hands its chunk to the root (rank 0)."""
    n = len(layout)
    handed = (Transfer(n - 1, rank, 0, rank, False) for rank in range(1, n))
    return Schedule(1.0 / n, (*scattered(n), *handed))


@algorithm("gloo_all_reduce", ("all_reduce",), schedule=all_reduce_schedule)
def all_reduce(op: str, size: float, group: GroupShape) -> Movement:
    """2(n-1)/n x size per edge in 2(n-1) steps, on two or more segments so that the next travels during the sum."""
    return _all_reduce(size, group)


@algorithm("gloo_reduce_scatter", ("reduce_scatter",), schedule=all_reduce_schedule)
def reduce_scatter(op: str, size: float, group: GroupShape) -> Movement:
    """As many bytes as an all-reduce: ProcessGroupGloo reduces everything and keeps a part."""
    return _all_reduce(size, group)


def _all_reduce(size: float, group: GroupShape) -> Movement:
    n, nodes = group.num_ranks, group.num_nodes
    return Movement("ring_down", 2 * (n - 1) / n * size, 2 * (n - nodes), 2 * (nodes - 1))


@algorithm("gloo_all_gather", ("all_gather",), schedule=all_gather_schedule)
def all_gather(op: str, size: float, group: GroupShape) -> Movement:
    """(n-1)/n x size per edge, in half-blocks; two ranks get in each other's way (TWO_RANKS_GATHER)."""
    n, nodes = group.num_ranks, group.num_nodes
    stretch = TWO_RANKS_GATHER if n == 2 else 1.0
    return Movement("ring_up", (n - 1) / n * size, n - nodes, nodes - 1, stretch=stretch)


@algorithm("gloo_reduce", ("reduce",), schedule=reduce_schedule)
def reduce(op: str, size: float, group: GroupShape) -> Movement:
    """Reduce-scatter, then a gather that the root's link has to take in: 2(n-1)/n x size as in an all-reduce."""
    n, nodes = group.num_ranks, group.num_nodes
    return Movement("ring_down_gather", size, n - nodes + int(nodes < n), nodes - 1 + int(nodes > 1))
