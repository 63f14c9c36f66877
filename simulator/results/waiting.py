"""How long does a step take beyond the mean rank's, because ranks wait for one another?

Replicas have a clock each. In every step each clock advances by the step and by the delay of its slowest node, and then
takes over the latest of those it has met: of all (bsp), of its group or neighbours, of none between averages (local),
or of the first m (backup). How fast the clocks advance together beyond the step is what waiting costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.hardware.stragglers import Stragglers
from simulator.ranks.grid import Grid
from simulator.workloads.synchronisation import Synchronisation, offsets

if TYPE_CHECKING:
    from simulator.program.builder import Built

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWS = 2_000_000
"""Delays drawn at most, over all nodes."""
ROUNDS, ROUNDS_APART = 50_000, 2000
"""Steps at most: where everybody meets in each, so that they are independent; and where steps hang together."""


def waiting_seconds(built: Built, stragglers: Stragglers | None, shares: Mapping[str, float]) -> float:
    """What a step waits for its slowest replica, beyond the mean, given the kernels' seconds in `shares`.

    Without `stragglers`, delays are normal with the software's jitter. The largest of n exceeds the mean by about
    sqrt(2 ln n) standard deviations where all wait for all; n counts the nodes, since GPUs of one node share what
    disturbs them. Other schemes wait in proportion to the clocks' advance.
    """
    setting = built.setting
    busy = shares["compute"] + shares["recompute"] + shares.get("padding", 0.0)
    nodes = max(1, built.communicators.communicators.topology.num_nodes)
    synchronisation, grid = setting.plan.synchronisation, setting.grid
    if stragglers is not None:
        return busy * advance(synchronisation, grid, nodes, stragglers)
    jitter = setting.software.jitter
    waiting = jitter * sqrt(2.0 * log(nodes)) * busy
    if synchronisation.scheme == "bsp" or not waiting:
        return waiting
    normal = Stragglers(distribution="normal", spread=1.0)
    together = advance(Synchronisation(), grid, nodes, normal)
    return waiting * advance(synchronisation, grid, nodes, normal) / together


@lru_cache(maxsize=64)
def advance(synchronisation: Synchronisation, grid: Grid, nodes: int, stragglers: Stragglers) -> float:
    """Mean advance of the clocks per step, in units of the step's compute time, beyond the step itself.

    Drawn with a generator of fixed seed.
    """
    if nodes == 1 or synchronisation.scheme == "asp":
        return stragglers.mean
    generator = np.random.default_rng(0)
    most = DRAWS // max(grid.dp, nodes)
    if synchronisation.scheme in ("bsp", "backup"):
        delays = _of_replicas(stragglers.draw(generator, (min(ROUNDS, most), nodes)), grid.dp)
        last = grid.dp - 1 - (synchronisation.backup if synchronisation.scheme == "backup" else 0)
        return float(np.partition(delays, last, axis=1)[:, last].mean())
    rounds = max(20, min(ROUNDS_APART, most))
    clock, begin, at_begin = np.zeros(grid.dp), rounds // 5, 0.0
    for step in range(rounds):
        clock = clock + _of_replicas(stragglers.draw(generator, (1, nodes)), grid.dp)[0]
        clock = _met(synchronisation, grid, clock, step)
        if step + 1 == begin:
            at_begin = float(clock.mean())
    return max(stragglers.mean, (float(clock.mean()) - at_begin) / (rounds - begin))


def _of_replicas(delays: Floats, replicas: int) -> Floats:
    """[steps, replicas] delays, given those of nodes: of the slowest node, or of the one that replicas share."""
    nodes = delays.shape[1]
    first = np.arange(replicas) * nodes // replicas
    return delays[:, first] if nodes <= replicas else np.asarray(np.maximum.reduceat(delays, first, axis=1))


def _met(synchronisation: Synchronisation, grid: Grid, clock: Floats, step: int) -> Floats:
    """The clocks of all replicas after they have met as the scheme has it in that step."""
    if synchronisation.scheme == "gossip":
        others = [np.roll(clock, offset) for offset in offsets(synchronisation.neighbours, len(clock))]
        return np.asarray(np.max([clock, *others], axis=0))
    if synchronisation.scheme == "groups":
        groups = _groups(grid, step % len(grid.mixing))
        clock[groups] = clock[groups].max(axis=1, keepdims=True)
        return clock
    return np.full_like(clock, clock.max()) if (step + 1) % synchronisation.every == 0 else clock


@lru_cache(maxsize=64)
def _groups(grid: Grid, number: int) -> Ints:
    """[groups, size] replicas that average together."""
    return Grid(dp=grid.dp, mixing=grid.mixing).groups(f"mix{number}")
