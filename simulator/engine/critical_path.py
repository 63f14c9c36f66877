"""Which tasks determined the makespan? The walk back from the last to end, through what each waited for."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from simulator.engine.deadlock import lane_predecessors
from simulator.engine.spans import Floats, Spans
from simulator.program.program import Program


class PathStep(NamedTuple):
    """A stretch of the critical path: `seconds` of a phase on `rank_class`. Kind "gap" if nothing ran."""

    kind: str
    label: str
    seconds: float
    rank_class: int


def critical_path(program: Program, start: Floats, end: Floats, spans: Spans) -> list[PathStep]:
    """Phases back to back, first to last; their seconds sum to the makespan.

    From a task one goes back to the predecessor (dependency, or task that held a lane before it) that ended last;
    of equals, the one with the lowest id.
    """
    path = critical_tasks(program, start, end)
    steps: list[PathStep] = []
    time = 0.0
    for task in path:
        if start[task] > time:
            steps.append(PathStep("gap", "", float(start[task]) - time, -1))
        first, last = np.searchsorted(spans.task, (task, task + 1))
        lanes = program.tasks[task].lanes
        for j in range(first, last):
            phase = program.tasks[task].phases[spans.phase[j]]
            seconds = float(spans.end[j] - spans.start[j])
            if seconds > 0.0:
                rank_class = program.lanes[lanes[phase.lane]].rank_class
                steps.append(PathStep(phase.kind, phase.label, seconds, rank_class))
        time = float(end[task])
    return steps


def critical_tasks(program: Program, start: Floats, end: Floats) -> list[int]:
    """Ids of the tasks on the critical path, first to last."""
    if not len(end):
        return []
    before = lane_predecessors(program)
    for lane, queue in enumerate(program.queues):
        if program.lanes[lane].first_come:  # tasks that took no time made nobody wait
            order = sorted((task for task in queue if end[task] > start[task]), key=lambda task: start[task])
            ends = [end[task] for task in order]
            for task in queue:
                place = bisect_right(ends, start[task])
                if place:
                    before[task].append((lane, order[place - 1]))
    task = int(end.argmax())
    path = [task]
    while True:
        awaited = [*program.tasks[task].deps, *(previous for _, previous in before[task])]
        if not awaited:
            return path[::-1]
        task = min(awaited, key=lambda other: (-end[other], other))
        path.append(task)
