"""What a timeline tells: phases, lanes, resources, memory, the critical path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine import MemoryPeak, execute
from simulator.program.program import MemoryChange, Program, Task
from tests.engine.building import program, work


def test_busy_time_of_lanes_counts_a_rendezvous_on_each() -> None:
    tasks = [Task((work(1.0),), (0,)), Task((work(3.0),), (1,)), Task((work(2.0),), (0, 1))]
    assert execute(program([], *tasks)).lane_busy.tolist() == [3.0, 5.0]


def test_utilization_is_use_over_what_the_capacity_offered_while_it_changed() -> None:
    timeline = execute(program([2.0, 1.0], work(4.0, 0), work(1.0, 1), changes=[(1.0, 0, 1.0)]))
    assert timeline.use.tolist() == [4.0, 1.0]
    assert timeline.offered.tolist() == [2.0 + 2.0, 3.0]
    assert timeline.utilization.tolist() == pytest.approx([1.0, 1 / 3])


def test_the_frame_has_a_row_per_phase_on_the_lane_it_is_shown_on() -> None:
    task = Task(
        (work(1.0, label="norm"), work(2.0, label="reduce", kind="tp", lane=1)), (0, 1), micro_batch=3
    )
    frame = execute(program([], task)).to_frame()
    assert frame["label"].tolist() == ["norm", "reduce"]
    assert frame["kind"].tolist() == ["compute", "tp"]
    assert frame["lane"].tolist() == ["lane0", "lane1"]
    assert frame["rank_class"].tolist() == [0, 1]
    assert frame["micro_batch"].tolist() == [3, 3]
    assert frame["start"].tolist() == [0.0, 1.0]
    assert frame["seconds"].tolist() == [1.0, 2.0]


def test_the_critical_path_follows_what_each_task_waited_for() -> None:
    forward = [Task((work(2.0, label="f0"),), (0,)), Task((work(1.0, label="idle"),), (1,))]
    send = Task((work(0.5, label="send", kind="pp", latency=0.5),), (2,), deps=(0,))
    rest = [
        Task((work(3.0, label="f1"), work(1.0, label="b1")), (1,), deps=(2,)),
        Task((work(1.0, label="f2"),), (0,)),
    ]
    what = program([], *forward, send, *rest)
    path = execute(what).critical_path(what)
    assert [tuple(step) for step in path] == [
        ("compute", "f0", 2.0, 0),
        ("pp", "send", 1.0, 2),
        ("compute", "f1", 3.0, 1),
        ("compute", "b1", 1.0, 1),
    ]


def held(*amounts: float, start: float = 0.0, lane: int = 0, deps: tuple[int, ...] = ()) -> Task:
    """A task that holds memory while it runs: weights for the first amount, buffers for the second."""
    changes = tuple(
        MemoryChange(0, kind, amount) for kind, amount in zip(("weights", "buffers"), amounts, strict=False)
    )
    frees = tuple(change._replace(amount=-change.amount) for change in changes)
    return Task((work(1.0, latency=start),), (lane,), deps, changes, frees)


def peak(what: Program) -> MemoryPeak:
    (found,) = execute(what).memory
    return found


def test_memory_is_counted_from_start_to_end_of_the_tasks_that_hold_it() -> None:
    what = program([], held(4.0, 1.0), Task((work(0.25),), (1,)), held(2.0, lane=1))
    assert peak(what) == MemoryPeak(0, 7.0, 0.25, {"weights": 6.0, "buffers": 1.0})


def test_what_ends_frees_before_what_starts_at_the_same_instant_allocates() -> None:
    what = program([], held(4.0), held(5.0, lane=0))
    assert peak(what).bytes == 5.0
    unrelated = program([], held(4.0), Task((work(1.0),), (1,)), held(5.0, lane=1))
    assert peak(unrelated).bytes == 5.0
    whatever_their_ids = program([], Task((work(1.0),), (0,)), held(4.0, lane=1), held(5.0, lane=0))
    assert peak(whatever_their_ids).bytes == 5.0


def test_of_equal_peaks_the_first_counts() -> None:
    assert peak(program([], held(4.0), held(4.0))).time == 0.0


def test_resident_memory_counts_from_the_beginning() -> None:
    what = replace(program([], held(4.0)), initial_memory=[MemoryChange(0, "parameters", 10.0)])
    assert peak(what) == MemoryPeak(0, 14.0, 0.0, {"parameters": 10.0, "weights": 4.0})


def test_each_rank_class_has_its_own_peak() -> None:
    tasks = [
        Task((work(1.0),), (lane,), (), (MemoryChange(lane, "activations", size),))
        for lane, size in enumerate((3.0, 8.0))
    ]
    peaks = execute(program([], *tasks)).memory
    assert [(p.rank_class, p.bytes) for p in peaks] == [(0, 3.0), (1, 8.0)]


def test_spans_of_tasks_that_share_a_chain_are_shifted_copies() -> None:
    phases = tuple(work(0.1 * k, latency=0.01, label=str(k)) for k in range(1, 5))
    timeline = execute(program([], *[Task(phases, (0,)) for _ in range(3)]))
    seconds = (timeline.spans.end - timeline.spans.start).reshape(3, 4)
    np.testing.assert_allclose(seconds, [[0.11, 0.21, 0.31, 0.41]] * 3, rtol=1e-12)
    assert timeline.makespan == pytest.approx(3 * 1.04)
