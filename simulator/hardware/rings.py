"""How many rings a collective library can lay through a mesh of GPUs, and which links they use."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import permutations

import numpy as np
import numpy.typing as npt

from simulator.hardware.links import FloatArray, IntArray

LARGEST_SEARCH = 8
"""GPUs up to which all orders of a ring are tried (5040 for eight)."""

Lanes = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)
def ring_usage(lanes: Lanes) -> tuple[float, FloatArray]:
    """(lanes in each direction that rings through all GPUs use, [GPU, GPU] part of what one sends to another).

    `lanes` [GPU, GPU] is symmetric. Every ring is a round trip through all GPUs that has a lane of each of its
    links, in its direction, to itself; each carries an equal part of what a GPU sends. Where no ring closes, or
    for more GPUs than can be searched, a GPU's lanes are taken to share what it sends and the one with the fewest
    counts. No lanes (width 0) where some GPU has no link to any other.
    """
    free = np.array(lanes, dtype=np.int64)
    narrowest = float(free.sum(axis=1).min())
    if narrowest == 0:
        return 0.0, np.zeros(free.shape)
    used = np.zeros_like(free)
    if len(free) <= LARGEST_SEARCH:
        used = max((_lay_rings(free, step) for step in (_one_way, _both_ways)), key=lambda u: u[0].sum())
    if not used.any():
        return narrowest, free / free.sum(axis=1, keepdims=True)
    width = float(used[0].sum())
    return width, used / width


def _one_way(order: IntArray) -> tuple[IntArray, IntArray]:
    return order, np.roll(order, -1)


def _both_ways(order: IntArray) -> tuple[IntArray, IntArray]:
    after = np.roll(order, -1)
    return np.concatenate([order, after]), np.concatenate([after, order])


def _lay_rings(lanes: IntArray, step: Callable[[IntArray], tuple[IntArray, IntArray]]) -> IntArray:
    """[GPU, GPU] lanes used when rings are laid one after the other, each where most lanes are still free."""
    free, orders = lanes.copy(), _orders(len(lanes))
    while True:
        left = free[orders, np.roll(orders, -1, axis=1)]
        # The ring whose scarcest link has most lanes left; of those, the one with most lanes left in all.
        best = orders[np.argmax(left.min(axis=1) * (lanes.sum() + 1) + left.sum(axis=1))]
        tail, head = step(best)
        if free[tail, head].min() < np.bincount(tail * len(lanes) + head).max():
            return lanes - free
        np.subtract.at(free, (tail, head), 1)


@lru_cache(maxsize=LARGEST_SEARCH)
def _orders(num_gpus: int) -> npt.NDArray[np.int64]:
    """[(n-1)!, n] every order of a ring, from GPU 0 on."""
    return np.array([(0, *rest) for rest in permutations(range(1, num_gpus))], dtype=np.int64)
