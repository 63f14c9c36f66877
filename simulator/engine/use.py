"""How much of each resource was in use, when? One pass over the phases of an executed program."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator

import numpy as np

from simulator.engine.spans import Floats, Spans
from simulator.program.program import Program

Pace = Callable[[int], tuple[list[float], list[float]]]
"""`Timeline.pace`: times at which the pace of a task may have changed, and its place at each."""
Drawing = tuple[int, list[tuple[int, float]]]
"""A phase's number, and (resource, amount over the whole phase)."""


def use_over_time(
    program: Program, spans: Spans, pace: Pace, resources: Collection[int]
) -> dict[int, tuple[Floats, Floats]]:
    """(times, use) by resource: `use[j]` units per second from `times[j]` to `times[j + 1]`, then 0.

    The integral of use over time is what was drawn. `pace` is to know every change: of a program executed with
    `trace=True`.
    """
    times: dict[int, list[float]] = {resource: [0.0] for resource in resources}
    steps: dict[int, list[float]] = {resource: [0.0] for resource in resources}
    firsts = np.searchsorted(spans.task, np.arange(len(program.tasks)))
    begins, ends = spans.work_start.tolist(), spans.end.tolist()
    for task, phases in _phases_that_draw(program, frozenset(resources)):
        knots, places = pace(task)
        for number, draws in phases:
            at = int(firsts[task]) + number
            if ends[at] <= begins[at]:
                continue
            for low, high, share in _pieces(knots, places, begins[at], ends[at]):
                for resource, amount in draws:
                    rate = amount * share / (high - low)
                    times[resource] += (low, high)
                    steps[resource] += (rate, -rate)
    return {resource: _summed(times[resource], steps[resource]) for resource in resources}


def _phases_that_draw(program: Program, wanted: frozenset[int]) -> Iterator[tuple[int, list[Drawing]]]:
    """(task, [(phase, [(resource, amount in all)])]) for the tasks that draw on one of the resources."""
    known: dict[int, list[Drawing]] = {}  # equal tasks share their phases
    for task, one in enumerate(program.tasks):
        key = id(one.phases)
        if key not in known:
            known[key] = [
                (number, draws)
                for number, phase in enumerate(one.phases)
                if (
                    draws := [
                        (r, a * phase.work) for r, a in phase.draws if r in wanted and a * phase.work > 0.0
                    ]
                )
            ]
        if known[key]:
            yield task, known[key]


def _pieces(
    knots: list[float], places: list[float], begin: float, end: float
) -> list[tuple[float, float, float]]:
    """(from, to, share of the work done) of a phase that ran from `begin` to `end`, at constant pace each."""
    first, last = bisect_right(knots, begin), bisect_left(knots, end)
    if first >= last:
        return [(begin, end, 1.0)]
    # at a repeated time the last coordinate counts on the way in, the first on the way out
    points = [
        (begin, _place(knots, places, begin, first)),
        *zip(knots[first:last], places[first:last], strict=True),
    ]
    points.append((end, _place(knots, places, end, last)))
    span = points[-1][1] - points[0][1]
    return [
        (low, high, (to - done) / span if span > 0.0 else (high - low) / (end - begin))
        for (low, done), (high, to) in itertools.pairwise(points)
        if high > low
    ]


def _place(knots: list[float], places: list[float], time: float, after: int) -> float:
    """The coordinate reached at `time`, which lies before knot `after`; between knots it grows evenly."""
    if after == 0:
        return places[0]
    if after == len(knots):
        return places[-1]
    low, high = knots[after - 1], knots[after]
    if high == low:
        return places[after]
    return places[after - 1] + (places[after] - places[after - 1]) * (time - low) / (high - low)


def _summed(times: list[float], steps: list[float]) -> tuple[Floats, Floats]:
    at, inverse = np.unique(np.array(times), return_inverse=True)
    change = np.zeros(len(at))
    np.add.at(change, inverse, np.array(steps))
    return at, np.cumsum(change)
