"""Classes that are told later how late they are do everything as if they had begun late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import Timeline, execute
from simulator.engine.engine import execute_apart
from simulator.engine.postponing import Meeting
from simulator.program.program import Lane, MemoryChange, Phase, Program, Task
from tests.engine.programs import programs


def side_by_side(apart: Sequence[Program], sums: Sequence[float]) -> Program:
    """Each program on a rank class of its own, and collectives of so many seconds after which each does more."""
    resources, lanes, tasks, queues = [], list[Lane](), list[Task](), list[list[int]]()
    for number, one in enumerate(apart):
        first, lane, resource = len(tasks), len(lanes), len(resources)
        resources += one.resources
        lanes += [Lane("compute", number) for _ in one.lanes]
        moved = {id(task.phases): _on(task.phases, resource) for task in one.tasks}
        for task in one.tasks:
            held = [
                tuple(MemoryChange(number, change.kind, change.amount) for change in changes)
                for changes in (task.at_start, task.at_end)
            ]
            at = tuple(lane + i for i in task.lanes)
            tasks.append(Task(moved[id(task.phases)], at, tuple(first + i for i in task.deps), *held))
        queues += [[first + task for task in queue] for queue in one.queues]
    firsts = [
        next(i for i, lane in enumerate(lanes) if lane.rank_class == number) for number in range(len(apart))
    ]
    for seconds in sums:
        together = Phase("dp", "sum", seconds, tuple((lane, 0.3) for lane in range(len(resources))))
        for lane in firsts:
            queues[lane].append(len(tasks))
        met = len(tasks)
        tasks.append(Task((together,), tuple(firsts)))
        for lane in range(len(lanes)):
            queues[lane].append(len(tasks))
            tasks.append(Task((Phase("compute", "after", 0.5, ((0, 1.0),)),), (lane,), (met,)))
    classes = [str(number) for number in range(len(apart))]
    return Program(resources, lanes, tasks, queues, rank_classes=classes, members=[1] * len(apart))


def _on(phases: tuple[Phase, ...], resource: int) -> tuple[Phase, ...]:
    return tuple(
        phase._replace(draws=tuple((resource + i, amount) for i, amount in phase.draws)) for phase in phases
    )


def begun_late(program: Program, late: Mapping[int, float]) -> Program:
    """With a task in front of every lane of a class, for as long as that is late."""
    tasks, queues = list(program.tasks), list(program.queues)
    for number, lane in enumerate(program.lanes):
        queues[number] = [len(tasks), *queues[number]]
        tasks.append(Task((Phase("other", "late", 0.0, latency=late[lane.rank_class]),), (number,)))
    return replace(program, tasks=tasks, queues=queues)


@given(
    st.lists(programs(changes=False, max_tasks=8), min_size=2, max_size=3),
    st.lists(st.sampled_from((0.2, 1.0)), min_size=1, max_size=2),
    st.lists(st.sampled_from((0.0, 0.0, 0.4, 1.0, 6.3)), min_size=3, max_size=3),
)
def test_told_late_is_begun_late(apart: list[Program], sums: list[float], seconds: list[float]) -> None:
    program = side_by_side(apart, sums)
    meetings = frozenset(i for i, task in enumerate(program.tasks) if task.label == "sum")
    late = dict(enumerate(seconds[: len(apart)]))
    told: list[float] = []

    def decide(so_far: Timeline) -> dict[int, float]:
        told.append(so_far.simulated)
        assert np.isinf(so_far.start[list(meetings)]).all()
        return late

    ours = execute_apart(program, Meeting(meetings, decide))
    reference = execute(begun_late(program, late))
    if ours is None:  # they would meet before the latest has got as far as it was
        first = reference.start[list(meetings)].min()
        assert first < told[0] + max(late.values())
        return
    assert len(told) == 1
    count = len(program.tasks)
    for name in ("start", "end"):
        theirs = getattr(reference, name)[:count]
        np.testing.assert_allclose(getattr(ours, name), theirs, rtol=1e-9, atol=1e-9)
    inside = reference.spans.task < count
    for name in ("task", "phase", "start", "work_start", "end"):
        theirs = getattr(reference.spans, name)[inside]
        np.testing.assert_allclose(getattr(ours.spans, name), theirs, rtol=1e-9, atol=1e-9)
    peaks = [{one.rank_class: one.bytes for one in timeline.memory} for timeline in (ours, execute(program))]
    assert peaks[0] == pytest.approx(peaks[1])


@given(st.lists(programs(changes=False, max_tasks=8), min_size=2, max_size=2))
def test_without_lateness_nothing_changes(apart: list[Program]) -> None:
    program = side_by_side(apart, [1.0])
    meetings = frozenset(i for i, task in enumerate(program.tasks) if task.label == "sum")
    ours = execute_apart(program, Meeting(meetings, lambda so_far: {}))
    assert ours is not None
    reference = execute(program)
    assert (ours.start == reference.start).all() and (ours.end == reference.end).all()


def test_a_run_that_is_given_up_has_no_timeline() -> None:
    one = Program([], [Lane("compute", 0)], [Task((Phase("compute", "x", 1.0, cap=1.0),), (0,))], [[0]])
    program = side_by_side([one, one], [])
    assert execute_apart(program, Meeting(frozenset(), lambda so_far: None)) is None
    late = execute_apart(program, Meeting(frozenset(), lambda so_far: {1: 2.0}))
    assert late is not None and late.end.tolist() == [1.0, 3.0]
