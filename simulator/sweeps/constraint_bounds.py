"""Which plans break a constraint whatever the engine answers, because their bounds already do?

A step takes no less than its bound, so rates (MFU, tokens per second, ...) are no higher than the bound's. Keys of
which nothing is known, such as what a breakdown says, exclude no plan before it is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.results.interval import memory_factors
from simulator.sweeps.objectives import OBJECTIVES, Constraint

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.sweeps.bound import Bounds
    from simulator.workloads.workload import Workload

Floats = NDArray[np.float64]

LEAST = {"step_time_s": "step_time", "cost_usd": "tokens_per_dollar", "energy_j": "tokens_per_joule"}
"""Keys of a prediction by the objective whose bound they are never below."""


_PEAKS: dict[str, Callable[[], float]] = {
    "memory.peak_bytes": lambda: 1.0,
    "memory.peak_low_bytes": lambda: memory_factors()[0],
    "memory.peak_high_bytes": lambda: memory_factors()[1],
}
"""Keys of a prediction that are a multiple of its peak."""


def excluding(
    constraints: Sequence[Constraint], cluster: Cluster, workload: Workload, bounds: Bounds
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """(positions of the plans that may keep to all constraints, number of the others by what excludes them first)."""
    left = np.ones(len(bounds.step_time), dtype=bool)
    reasons: dict[str, int] = {}
    for constraint in constraints:
        broken = left & _broken(constraint, *limits(constraint.key, cluster, workload, bounds))
        if broken.any():
            reasons[str(constraint)] = int(broken.sum())
            left &= ~broken
    return np.flatnonzero(left), reasons


def is_bounded(key: str, cluster: Cluster, workload: Workload) -> bool:
    """Whether something of the key is known before a plan is simulated."""
    if key in LEAST:
        return OBJECTIVES[LEAST[key]].missing(cluster) is None
    if key in _PEAKS:  # which is that of the GPU with the largest share in use
        return len({group.node.gpu.memory.total for group in cluster.node_groups}) == 1
    return key in _per_step(cluster, workload)


def limits(key: str, cluster: Cluster, workload: Workload, bounds: Bounds) -> tuple[Floats, Floats]:
    """(what the key's value is never below, what it is never above), one per plan."""
    nothing = np.full(len(bounds.step_time), -inf), np.full(len(bounds.step_time), inf)
    if not is_bounded(key, cluster, workload):
        return nothing
    if key in LEAST:
        return OBJECTIVES[LEAST[key]].bound(cluster, bounds), nothing[1]
    if key in _PEAKS:
        return _PEAKS[key]() * bounds.peak_bytes, nothing[1]
    with np.errstate(divide="ignore"):
        return nothing[0], _per_step(cluster, workload)[key] / bounds.step_time


def _per_step(cluster: Cluster, workload: Workload) -> dict[str, float]:
    """What a step does of each rate, whatever the plan."""
    gpus = cluster.num_gpus
    peak = sum(
        group.num_nodes * group.node.num_gpus * group.node.gpu.dense_peak.get(workload.precision, 0.0)
        for group in cluster.node_groups
    )
    done = {
        "mfu": workload.flops / peak if peak else inf,
        "tflops_per_gpu": workload.flops / gpus / 1e12,
        "samples_per_s": float(workload.global_batch),
    }
    if not workload.model.counts_tokens:
        return {**done, "samples_per_s_per_gpu": workload.global_batch / gpus}
    return {**done, "tokens_per_s": workload.tokens, "tokens_per_s_per_gpu": workload.tokens / gpus}


def _broken(constraint: Constraint, least: Floats, most: Floats) -> NDArray[np.bool_]:
    limit = constraint.limit
    known: dict[str, NDArray[np.bool_]] = {
        "<=": least > limit,
        "<": least >= limit,
        ">=": most < limit,
        ">": most <= limit,
        "=": (least > limit) | (most < limit),
    }
    return known[constraint.operator]
