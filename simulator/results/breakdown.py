"""Where the time of one rank class went: exclusive wall time by kind, summing to a step."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.timeline import Repetition, Timeline
from simulator.program.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = (
    "compute",
    "recompute",
    "tp",
    "cp",
    "ep",
    "pp",
    "dp",
    "bubble",
    "optimizer",
    "launch",
    "data",
    "checkpoint",
    "offload",
    "other",
)
WAITED_FOR = ("dp", "ep", "cp", "tp", "pp", "offload", "data", "checkpoint", "optimizer", "launch", "other")
"""While the compute stream is idle, the first of these that is under way on the rank is what it waits for."""


def breakdown(program: Program, timeline: Timeline, rank_class: int) -> dict[str, float]:
    """Seconds by kind for one rank class, per step.

    While the compute stream runs a task, the phase that runs decides; while it is idle, the most urgent other
    activity of the rank (`WAITED_FOR`); while there is none, it is a bubble. A host that launches while the stream
    idles for another reason is not what it waits for. Kernels' time on tokens that belong to no document is a kind of
    its own, `padding`, where there is any.
    """
    seconds = dict.fromkeys(KINDS, 0.0)
    compute, others = _tasks_of(program, rank_class)
    start, end = timeline.start[compute], timeline.end[compute]
    order = np.argsort(start, kind="stable")
    for kind, amount in timeline.seconds_by_kind(compute[order].tolist()).items():
        seconds[kind] = seconds.get(kind, 0.0) + amount
    times = 1.0 if timeline.times_run is None else float(timeline.times_run[compute].max(initial=1.0))
    horizon = timeline.simulated / times  # its own step's end, where it does not wait for slower replicas
    begin = timeline.late.get(rank_class, 0.0)
    gaps, repeated = _gaps(start[order], end[order], begin, horizon), timeline.repetition_of(rank_class)
    for kind in WAITED_FOR:
        tasks = [task for task in others if program.tasks[task].kind == kind]
        if kind == "launch" and tasks and len(gaps):
            tasks = _awaited_launches(program, timeline, rank_class, compute[order], tasks)
        if tasks and len(gaps):
            busy = _union(timeline.start[tasks], timeline.end[tasks])
            before = _length(gaps, repeated)
            gaps = _without(gaps, busy)
            seconds[kind] += times * (before - _length(gaps, repeated))
    seconds["bubble"] += times * _length(gaps, repeated)
    return {kind: amount / timeline.num_steps for kind, amount in seconds.items()}


def _awaited_launches(
    program: Program, timeline: Timeline, rank_class: int, compute: NDArray[np.int64], launches: list[int]
) -> list[int]:
    """Launches that the compute stream idles for: the last that its next task, or what this waits for, waits for."""
    before = _lane_predecessors(program, rank_class)
    mine, found = set(launches), {}
    idle_from = 0.0
    for task in compute.tolist():
        waiting = task
        while timeline.start[waiting] > idle_from:
            awaited = [*program.tasks[waiting].deps, *before.get(waiting, ())]
            if not awaited:
                break
            waiting = min(awaited, key=lambda other: (-timeline.end[other], other))
            if timeline.end[waiting] <= idle_from or waiting not in before:
                break  # for its own stream, or for another rank
            if waiting in mine:
                found[waiting] = True
        idle_from = float(timeline.end[task])
    return list(found)


def _lane_predecessors(program: Program, rank_class: int) -> dict[int, list[int]]:
    """For the tasks of a class, those before them on its in-order lanes."""
    before: dict[int, list[int]] = {}
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if lane.rank_class == rank_class and queue:
            before.setdefault(queue[0], [])
            for previous, task in pairwise(queue):
                before.setdefault(task, [])
                if not lane.first_come:
                    before[task].append(previous)
    return before


def critical_class(program: Program, timeline: Timeline) -> int:
    """The rank class whose compute stream is busiest (the lowest of equals): it sets the pace.

    Of replicas that do not wait for one another, the slowest counts.
    """
    busiest, most = 0, -1.0
    for lane, queue, busy in zip(program.lanes, program.queues, timeline.lane_busy.tolist(), strict=True):
        slowest = timeline.times_run is None or timeline.times_run[queue].max(initial=1.0) <= 1.0
        if lane.name == "compute" and slowest and busy > most * (1 + 1e-12):
            busiest, most = lane.rank_class, busy
    return busiest


def _tasks_of(program: Program, rank_class: int) -> tuple[NDArray[np.int64], list[int]]:
    compute: list[int] = []
    others: list[int] = []
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if lane.rank_class == rank_class:
            (compute if lane.name == "compute" else others).extend(queue)
    inside = set(compute)
    return np.array(compute, dtype=np.int64), [t for t in dict.fromkeys(others) if t not in inside]


def _gaps(
    start: NDArray[np.float64], end: NDArray[np.float64], begin: float, makespan: float
) -> NDArray[np.float64]:
    """Intervals of [begin, makespan] outside the given disjoint, ordered ones, shape [gaps, 2]."""
    edges = np.concatenate([[begin], np.column_stack([start, end]).ravel(), [makespan]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def _union(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), dtype=bool)
    first[1:] = start[1:] > reach[:-1]
    last = np.append(first[1:], True)
    return np.column_stack([start[first], reach[last]])


def _without(gaps: NDArray[np.float64], busy: NDArray[np.float64]) -> NDArray[np.float64]:
    """The parts of `gaps` that no interval of `busy` covers; both are disjoint and ordered."""
    points = np.unique(np.concatenate([gaps.ravel(), busy.ravel()]))
    middle = (points[:-1] + points[1:]) / 2
    kept = _inside(middle, gaps) & ~_inside(middle, busy)
    return np.column_stack([points[:-1][kept], points[1:][kept]])


def _inside(points: NDArray[np.float64], intervals: NDArray[np.float64]) -> NDArray[np.bool_]:
    if not len(intervals):
        return np.zeros(len(points), dtype=bool)
    index = np.searchsorted(intervals[:, 0], points, side="right") - 1
    return np.asarray((index >= 0) & (points < intervals[np.maximum(index, 0), 1]))


def _length(intervals: NDArray[np.float64], repeated: Repetition | None) -> float:
    """Total length; what lies in a repeated stretch counts as often as that is repeated."""
    if not len(intervals):
        return 0.0
    alone = repeated is not None and repeated.alone
    total = 0.0 if alone else float((intervals[:, 1] - intervals[:, 0]).sum())
    if repeated is not None:
        clipped = np.clip(intervals, repeated.start, repeated.start + repeated.seconds)
        total += repeated.count * float((clipped[:, 1] - clipped[:, 0]).sum())
    return total
