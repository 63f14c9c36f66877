"""What holds in every execution of every program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine import Timeline, execute
from simulator.engine.check import initial_capacities
from simulator.program.program import Program
from tests.engine.programs import programs


def capacity_at(program: Program, resource: int, times: np.ndarray) -> np.ndarray:
    capacity = np.full(len(times), initial_capacities(program)[resource])
    for change in sorted(program.capacity_changes, key=lambda change: change.time):
        if change.resource == resource and change.time > 0.0:
            capacity[times >= change.time] = change.capacity
    return capacity


@given(program=programs())
def test_no_lane_runs_two_tasks_at_once_and_each_keeps_its_order(program: Program) -> None:
    timeline = execute(program)
    for queue in program.queues:
        for before, after in pairwise(queue):
            assert timeline.end[before] <= timeline.start[after]


@given(program=programs())
def test_a_task_starts_the_moment_its_last_predecessor_ends(program: Program) -> None:
    timeline = execute(program)
    before: list[list[int]] = [list(task.deps) for task in program.tasks]
    for queue in program.queues:
        for first, second in pairwise(queue):
            before[second].append(first)
    for i, awaited in enumerate(before):
        assert timeline.start[i] == max((timeline.end[j] for j in awaited), default=0.0)


@given(program=programs())
def test_no_resource_is_used_above_its_capacity_at_any_instant(program: Program) -> None:
    timeline = execute(program, trace=True)
    for resource in range(len(program.resources)):
        times, use = timeline.use_history(resource)
        ends = np.append(times[1:], timeline.makespan)
        middles = (times + ends) / 2
        lasting = ends - times > 1e-9  # ends and starts that coincide may be an ulp apart
        limit = capacity_at(program, resource, middles)
        assert np.all(use[lasting] <= limit[lasting] * (1 + 1e-9) + 1e-9)


@given(program=programs())
def test_what_flows_through_a_resource_is_work_times_draws(program: Program) -> None:
    timeline = execute(program, trace=True)
    drawn = np.zeros(len(program.resources))
    for task in program.tasks:
        for phase in task.phases:
            for resource, amount in phase.draws:
                drawn[resource] += phase.work * amount
    np.testing.assert_allclose(timeline.use, drawn, rtol=1e-12)
    for resource, total in enumerate(drawn):
        times, use = timeline.use_history(resource)
        flowed = np.sum(use * np.diff(np.append(times, timeline.makespan)))
        np.testing.assert_allclose(flowed, total, rtol=1e-9, atol=1e-9)
    assert np.all(timeline.utilization <= 1 + 1e-9)


@given(program=programs())
def test_phases_fill_their_task_and_none_is_faster_than_alone(program: Program) -> None:
    timeline = execute(program)
    spans = timeline.spans
    best = [
        max([c.capacity for c in program.capacity_changes if c.resource == r] + [resource.capacity])
        for r, resource in enumerate(program.resources)
    ]
    j = 0
    for i, task in enumerate(program.tasks):
        at = timeline.start[i]
        for number, phase in enumerate(task.phases):
            assert (spans.task[j], spans.phase[j]) == (i, number)
            assert spans.start[j] == at
            rate = min([phase.cap, *(best[r] / amount for r, amount in phase.draws)])
            assert spans.end[j] - at >= (phase.latency + phase.work / rate) * (1 - 1e-9) - 1e-12
            at = spans.end[j]
            j += 1
        assert at == timeline.end[i]
    assert j == len(spans.task)


@given(program=programs(changes=False))
def test_the_makespan_is_at_least_the_work_of_each_resource_and_each_lane(program: Program) -> None:
    timeline = execute(program)
    for resource, use in zip(program.resources, timeline.use, strict=True):
        assert timeline.makespan >= use / resource.capacity * (1 - 1e-12)
    assert np.all(timeline.lane_busy <= timeline.makespan * (1 + 1e-12))


@given(program=programs())
def test_the_critical_path_has_no_gaps_and_sums_to_the_makespan(program: Program) -> None:
    timeline = execute(program)
    path = timeline.critical_path(program)
    np.testing.assert_allclose(sum(step.seconds for step in path), timeline.makespan, rtol=1e-9, atol=1e-12)
    assert all(step.kind != "gap" for step in path)


@given(program=programs())
def test_two_runs_are_equal_bit_for_bit(program: Program) -> None:
    first, second = execute(program, trace=True), execute(program, trace=True)
    for name in ("start", "end"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
        assert np.array_equal(getattr(first.spans, name), getattr(second.spans, name))
    assert first.memory == second.memory


@given(program=programs())
def test_tracing_changes_nothing(program: Program) -> None:
    assert np.array_equal(execute(program).end, execute(program, trace=True).end)


@settings(max_examples=60)
@given(program=programs(), order=st.randoms(use_true_random=False))
def test_relabelling_tasks_lanes_and_resources_changes_no_time(program: Program, order) -> None:
    def shuffled(n: int) -> list[int]:
        """New place of each of n things."""
        places = list(range(n))
        order.shuffle(places)
        return places

    task_at, lane_at = shuffled(len(program.tasks)), shuffled(len(program.lanes))
    resource_at = shuffled(len(program.resources))

    def moved(things: list, places: list[int]) -> list:
        result = list(things)
        for thing, place in zip(things, places, strict=True):
            result[place] = thing
        return result

    def phase(p):
        return p._replace(draws=tuple(sorted((resource_at[r], a) for r, a in p.draws)), lane=0)

    tasks = [
        replace(
            task,
            phases=tuple(map(phase, task.phases)),
            lanes=tuple(lane_at[lane] for lane in task.lanes),
            deps=tuple(task_at[dep] for dep in task.deps),
        )
        for task in program.tasks
    ]
    relabelled = Program(
        resources=moved(program.resources, resource_at),
        lanes=moved(program.lanes, lane_at),
        tasks=moved(tasks, task_at),
        queues=moved([[task_at[i] for i in queue] for queue in program.queues], lane_at),
        capacity_changes=[replace(c, resource=resource_at[c.resource]) for c in program.capacity_changes],
    )
    ours, theirs = execute(program), execute(relabelled)
    np.testing.assert_allclose(theirs.end[task_at], ours.end, rtol=1e-9, atol=1e-12)


@given(program=programs())
def test_the_memory_peak_is_the_highest_point_of_the_ledger(program: Program) -> None:
    """Recomputed from starts and ends: the peak is reached, and nothing held for any length of time exceeds it."""
    timeline = execute(program)
    at = np.unique(np.concatenate([timeline.start, timeline.end]))
    middles = (at[1:] + at[:-1]) / 2
    middles = middles[np.diff(at) > 1e-9]
    held = np.zeros(len(middles))
    for i, task in enumerate(program.tasks):
        for change in task.at_start:
            held += change.amount * ((timeline.start[i] <= middles) & (middles < timeline.end[i]))
    if any(task.at_start for task in program.tasks):
        (peak,) = timeline.memory
        assert sum(peak.by_kind.values()) == peak.bytes
        assert peak.bytes >= held.max(initial=0.0)
        running = (timeline.start <= peak.time) & (peak.time <= timeline.end)
        assert peak.bytes <= sum(c.amount for i in np.flatnonzero(running) for c in program.tasks[i].at_start)
    else:
        assert timeline.memory == []


def test_an_empty_program_takes_no_time() -> None:
    timeline: Timeline = execute(Program())
    assert timeline.makespan == 0.0
    assert timeline.critical_path(Program()) == []
    assert len(timeline.to_frame()) == 0
