"""First-come lanes: one task at a time, in the order of becoming ready; in-order lanes are as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.engine.faults import ProgramError
from simulator.program.program import Lane, Phase, Program, Task


def program(delays: list[float], work: list[float]) -> Program:
    """Task i becomes ready at delays[i] (after a task of its own) and holds the one first-come lane for work[i]."""
    lanes, tasks, queues = [Lane("connection", 0, first_come=True)], [], [[]]
    for i, delay in enumerate(delays):
        lanes.append(Lane(f"before {i}", 0))
        queues.append([len(tasks)])
        tasks.append(Task((Phase("other", "wait", 0.0, latency=delay),), (i + 1,)))
    for i, seconds in enumerate(work):
        queues[0].append(len(tasks))
        tasks.append(Task((Phase("other", "hold", 0.0, latency=seconds),), (0,), deps=(i,)))
    return Program(lanes=lanes, tasks=tasks, queues=queues, rank_classes=("rank",), members=(1,))


def test_who_is_ready_first_goes_first_whatever_the_queue_says():
    timeline = execute(program([2.0, 1.0], [5.0, 3.0]))
    assert timeline.start[2:].tolist() == [4.0, 1.0]


def test_equals_go_in_the_order_of_the_queue():
    timeline = execute(program([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]))
    assert timeline.start[3:].tolist() == [1.0, 3.0, 5.0]


times = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=8)


@given(times, st.data())
def test_the_lane_is_never_shared_nor_idle_while_somebody_waits(delays, data):
    work = data.draw(st.lists(st.integers(0, 9).map(float), min_size=len(delays), max_size=len(delays)))
    timeline = execute(program(delays, work))
    starts, ends = timeline.start[len(delays) :], timeline.end[len(delays) :]
    order = sorted(range(len(delays)), key=lambda i: (starts[i], ends[i], delays[i], i))
    free = 0.0
    for i in order:
        assert starts[i] == max(free, delays[i])
        free = ends[i]
    by_arrival = sorted(range(len(delays)), key=lambda i: (delays[i], i))
    assert [starts[i] for i in by_arrival] == sorted(starts)


@given(times, st.data())
def test_the_critical_path_through_the_lane_has_no_gap(delays, data):
    work = data.draw(st.lists(st.integers(1, 9).map(float), min_size=len(delays), max_size=len(delays)))
    made = program(delays, work)
    timeline = execute(made)
    path = timeline.critical_path(made)
    assert sum(step.seconds for step in path) == pytest.approx(timeline.makespan)
    assert all(step.kind != "gap" for step in path)


def test_a_task_holds_one_first_come_lane_at_most():
    lanes = [Lane("a", 0, first_come=True), Lane("b", 0, first_come=True)]
    task = Task((Phase("other", "x", 0.0, latency=1.0),), (0, 1))
    with pytest.raises(ProgramError, match="more than one first-come lane"):
        execute(Program(lanes=lanes, tasks=[task], queues=[[0], [0]], rank_classes=("rank",), members=(1,)))
