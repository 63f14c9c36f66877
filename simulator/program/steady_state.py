"""When does a pipeline repeat itself, so that most of its micro-batches need not be simulated?

The engine is deterministic and knows no absolute time: if, at two instants, every lane stands at corresponding places
of its queue and what is under way has as long to go, whatever follows is the same. A schedule with a period only
inserts more of the same in the middle of its queues as micro-batches are added. So when the stretch of time between
two such instants holds one period, any number of such stretches can be left out or put in (design section 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine.timeline import Repetition, Timeline
from simulator.program.independence import shared_tasks
from simulator.program.program import Program
from simulator.program.schedules import find_schedule

TOLERANCE = 1e-10
"""Relative to the makespan: rounding of sums of floats."""


def lengths(schedule: str, num_stages: int, chunks: int, num_micro_batches: int) -> Iterator[tuple[int, int]]:
    """(micro-batches to simulate, micro-batches per stretch) to try in turn, none where it would not pay.

    A stretch is one micro-batch, or one round of the stages where chunks are interleaved.
    """
    known = find_schedule(schedule)
    repeats = None if known is None else known.period
    if repeats is None:
        return
    period = repeats(num_stages, chunks)
    for rounds in (4, 6, 9) if period == 1 else (3, 4, 6, 9):
        base = rounds * num_stages * chunks // 2 + 4 if period == 1 else rounds * num_stages
        count = base + (num_micro_batches - base) % period
        if count + 2 * period <= num_micro_batches:
            yield count, period


def num_steps_to_try(num_stages: int, num_micro_batches: int) -> Iterator[int]:
    """How many steps to run into one another until one in the middle shows how the pipeline goes on for ever."""
    filling = -(-2 * num_stages // num_micro_batches)
    for margin in (1, 2, 4):
        yield 2 * (filling + margin) + 2


def everyone(program: Program) -> frozenset[int]:
    return frozenset(range(len(program.rank_classes)))


LOCAL_STEPS = 4
"""Steps that show how replicas go on for themselves: one to start, two that are equal, and the one that averages."""


def local_step(program: Program, timeline: Timeline, period: int, missing: int) -> Repetition:
    """The second step of several that run one after the other, which was left out `missing` times."""
    lane = next(i for i, lane in enumerate(program.lanes) if lane.name == "compute")
    batches = [(program.tasks[task].micro_batch, task) for task in program.queues[lane]]
    start, end = (
        float(timeline.start[next(task for batch, task in batches if batch == number * period)])
        for number in (1, 2)
    )
    tolerance = TOLERANCE * timeline.simulated
    inside = np.flatnonzero((timeline.start >= start - tolerance) & (timeline.start < end - tolerance))
    return Repetition(missing, end - start, start, inside, everyone(program))


def endless(program: Program, timeline: Timeline, period: int) -> tuple[Repetition, bool]:
    """One step of `period` micro-batches in the middle of several, and whether the next one repeats it exactly.

    That step alone is what counts where a pipeline goes on for ever.
    """
    batches = np.array([task.micro_batch for task in program.tasks])
    compute = np.array(
        program.queues[next(i for i, lane in enumerate(program.lanes) if lane.name == "compute")]
    )
    middle = (int(batches[compute].max()) + 1) // period // 2 * period
    firsts = [compute[np.argmax(batches[compute] == middle + k * period)] for k in range(2)]
    start = float(timeline.start[firsts[0]])
    seconds = float(timeline.start[firsts[1]]) - start
    tolerance = TOLERANCE * timeline.simulated
    exact = True
    for queue in program.queues:
        tasks = np.array(queue)
        exact &= (
            _stretch(
                program, timeline, batches, tasks, start + seconds, seconds, seconds, period, tolerance, True
            )
            is not None
        )
    begins = timeline.start
    inside = np.flatnonzero((begins >= start - tolerance) & (begins < start + seconds - tolerance))
    return Repetition(1, seconds, start, inside, everyone(program), alone=True), exact


Parts = Sequence[frozenset[int]]
"""Sets of rank classes that go on independently of each other (see `independence`)."""


def repetitions(
    program: Program, timeline: Timeline, parts: Parts, period: int, missing: int
) -> tuple[Repetition, ...]:
    """For each of the `parts` the stretch of `period` micro-batches after which it repeats itself.

    None if one does not, or meets another before it has. `missing` micro-batches were left out of the program.
    """
    batches = np.array([task.micro_batch for task in program.tasks])
    meetings = timeline.start[shared_tasks(program, parts)].min(initial=np.inf)
    found = []
    for classes in parts:
        one = _repetition(program, timeline, batches, classes, period, missing)
        if one is None or one.start + one.seconds > min(meetings, timeline.simulated):
            return ()
        found.append(one)
    return tuple(found)


def lateness(found: Sequence[Repetition]) -> dict[int, float]:
    """By rank class, how much later it must begin to meet the others when it does in the whole program."""
    least = min((one.left_out for one in found), default=0.0)
    return {rank_class: one.left_out - least for one in found for rank_class in one.classes}


def postponed(found: Sequence[Repetition], late: Mapping[int, float]) -> list[Repetition]:
    """The same on rank classes that begin so late."""
    return [replace(one, start=one.start + late[min(one.classes)]) for one in found]


def _repetition(
    program: Program,
    timeline: Timeline,
    batches: NDArray[np.int64],
    classes: frozenset[int],
    period: int,
    missing: int,
) -> Repetition | None:
    tolerance = TOLERANCE * timeline.simulated
    window = _window(program, timeline, batches, classes, period)
    if window is None:
        return None
    start, seconds = window
    margin = _compared(period) * seconds
    repeated = []
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if lane.rank_class not in classes:
            continue
        tasks = np.array(queue)
        span = _stretch(program, timeline, batches, tasks, start, seconds, margin, period, tolerance)
        if span is None and not (lane.name == "host" and _ahead(program, timeline, tasks, start - margin)):
            return None
        if span is not None:
            repeated.append(tasks[span])
    everything = np.unique(np.concatenate(repeated)) if repeated else np.zeros(0, dtype=np.int64)
    return Repetition(missing // period, seconds, start, everything, classes)


def _window(
    program: Program,
    timeline: Timeline,
    batches: NDArray[np.int64],
    classes: frozenset[int],
    period: int,
) -> tuple[float, float] | None:
    """(start, length) of a stretch in the first compute lane of the classes; with what is compared, in its middle."""
    lanes = enumerate(program.lanes)
    lane = next(i for i, lane in lanes if lane.name == "compute" and lane.rank_class in classes)
    tasks = np.array(program.queues[lane])
    labelled = tasks[batches[tasks] >= 0]
    middle = int(batches[labelled].max()) // 2
    stride = int(((batches[labelled] >= middle) & (batches[labelled] < middle + period)).sum())
    first = len(tasks) // 2 - int(stride * (1.0 - _compared(period)) / 2)
    if stride == 0 or first < stride * _compared(period) or first + stride >= len(tasks):
        return None
    begin, end = (float(timeline.start[tasks[place]]) for place in (first, first + stride))
    return (begin, end - begin) if end < np.inf else None


def _compared(period: int) -> float:
    """How much of a stretch is compared with the one before: all of it, or (interleaved) the last quarter.

    What is under way at an instant, and how far, is all that counts: a quarter of a round has seen it begin.
    """
    return 1.0 if period == 1 else 0.25


def _stretch(
    program: Program,
    timeline: Timeline,
    batches: NDArray[np.int64],
    tasks: NDArray[np.int64],
    start: float,
    seconds: float,
    margin: float,
    period: int,
    tolerance: float,
    steps: bool = False,
) -> slice | None:
    """The lane's tasks that start within the stretch, if it ends as it began; None if it does not.

    What starts in the last `margin` seconds before the end must have started as long before the beginning, what is
    under way must have as long to go, and what comes next must be the same. Every task must belong to a micro-batch,
    unless whole `steps` repeat themselves.
    """
    begins, ends = timeline.start[tasks], timeline.end[tasks]
    marks = np.array([start - margin, start, start + seconds - margin, start + seconds]) - tolerance
    low, first, high, second = np.searchsorted(begins, marks).tolist()
    size = second - first
    if high - low != size:
        return None
    if size == 0:
        idle = second == 0 or bool(ends[second - 1] <= start + tolerance)
        return slice(first, second) if idle else None
    # What was under way already must have had as long to go.
    if low > 0 and max(ends[low - 1] - marks[0], ends[high - 1] - marks[2]) > 2 * tolerance:
        low, high = low - 1, high - 1
    following = 0 if steps else 1  # the next task, which starts later
    if second + following > len(tasks):
        return None
    shifts = np.concatenate([at[high:second] - at[low:first] for at in (begins, ends)]) - seconds
    if not np.abs(shifts).max(initial=0.0) <= tolerance:  # nor where some of it has not happened yet
        return None
    here, there = tasks[low : first + following], tasks[high : second + following]
    numbered = batches[here] >= 0
    same = bool((batches[there] - batches[here] == period * numbered).all())
    same &= steps or bool((batches[tasks[low : second + following]] >= 0).all())
    same &= all(
        program.tasks[a].phases == program.tasks[b].phases
        for a, b in zip(here.tolist(), there.tolist(), strict=True)
    )
    return slice(first, second) if same else None


def _ahead(program: Program, timeline: Timeline, tasks: NDArray[np.int64], start: float) -> bool:
    """A host that waits for nobody and launches faster than the GPU computes can never be waited for later."""
    launches = tasks[[not program.tasks[task].deps for task in tasks.tolist()]]
    if len(launches) < len(tasks) - 3:
        return False
    behind = timeline.end[tasks] > start
    return not behind[: len(tasks) // 2].any()
