"""Programs that cannot be executed are refused, and the message says which task, lane or resource is at fault."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from simulator.engine import PLAIN, DeadlockError, EngineOptions, ProgramError, execute
from simulator.program.program import CapacityChange, Phase, Program, Task
from tests.engine.building import program, work

SOUND = work(1.0, 0)


def faulty_phase(**changes) -> Program:
    return program([1.0, 0.0], SOUND._replace(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"work": -1.0}, "work -1.0 is not a finite number >= 0"),
        ({"work": nan}, "work nan is not"),
        ({"work": inf}, "work inf is not"),
        ({"latency": -1e-6}, "latency -1e-06 is not"),
        ({"latency": nan}, "latency nan is not"),
        ({"cap": 0.0}, "cap 0.0 is not > 0"),
        ({"cap": nan}, "cap nan is not > 0"),
        ({"weight": 0.0}, "weight 0.0 is not"),
        ({"weight": inf}, "weight inf is not"),
        ({"draws": ()}, "nothing limits its rate"),
        ({"draws": ((7, 1.0),)}, "no resource 7"),
        ({"draws": ((0, -1.0),)}, "draws -1.0 from 'link0'"),
        ({"draws": ((0, nan),)}, "draws nan from 'link0'"),
        ({"draws": ((0, 1.0), (0, 1.0))}, "ascending order of resource, each once"),
        ({"draws": ((1, 1.0),)}, "'link1', whose capacity is 0 and never changes"),
        ({"lane": 1}, "lane 1 of 1"),
    ],
)
def test_impossible_amounts(changes: dict, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as fault:
        execute(faulty_phase(**changes))
    assert "task 0, phase 'work'" in str(fault.value)


def with_program(**changes) -> Program:
    sound = program([1.0], Task((SOUND,), (0,)), Task((SOUND,), (0, 1)))
    return replace(sound, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queues": [[0, 1], []]}, "lane 1 'lane1': task 1 'work' is missing from the queue"),
        ({"queues": [[0, 1, 0], [1]]}, "task 0 stands in the queue more than once"),
        ({"queues": [[0, 1], [1, 0]]}, "task 0 'work' is queued here but occupies lanes"),
        ({"queues": [[0, 1], [1, 5]]}, "no task 5"),
        ({"queues": [[0, 1]]}, "1 queues for 2 lanes"),
        ({"tasks": [Task((SOUND,), ()), Task((SOUND,), (0, 1))]}, "task 0 'work' occupies no lane"),
        ({"tasks": [Task((SOUND,), (0,)), Task((SOUND,), (1, 1))]}, "names a lane twice"),
        ({"tasks": [Task((SOUND,), (0,)), Task((SOUND,), (0, 1), deps=(2,))]}, "no task 2 to depend on"),
        ({"tasks": [Task((SOUND,), (0,)), Task((SOUND,), (0, 1), deps=(-1,))]}, "no task -1 to depend on"),
        ({"capacity_changes": [CapacityChange(-1.0, 0, 1.0)]}, "time -1.0 is not >= 0"),
        ({"capacity_changes": [CapacityChange(nan, 0, 1.0)]}, "time nan is not >= 0"),
        ({"capacity_changes": [CapacityChange(1.0, 3, 1.0)]}, "no resource 3"),
        ({"capacity_changes": [CapacityChange(1.0, 0, -2.0)]}, "capacity -2.0 is not >= 0"),
        (
            {"capacity_changes": [CapacityChange(0.0, 0, 0.0)]},
            "'link0', whose capacity is 0 and never changes",
        ),
    ],
)
def test_parts_that_do_not_fit_together(changes: dict, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        execute(with_program(**changes))


def test_a_negative_or_undefined_capacity() -> None:
    for capacity in (-1.0, nan):
        with pytest.raises(ProgramError, match=f"resource 0 'link0': capacity {capacity} is not >= 0"):
            execute(program([capacity], SOUND))


def labelled(label: str, *lanes: int, deps: tuple[int, ...] = ()) -> Task:
    return Task((Phase("compute", label, 1.0, cap=1.0),), lanes, deps)


@pytest.fixture(params=[EngineOptions(), PLAIN], ids=["fast", "plain"])
def options(request: pytest.FixtureRequest) -> EngineOptions:
    return request.param


def test_dependencies_in_a_circle_are_named(options: EngineOptions) -> None:
    circle = program(
        [],
        labelled("start", 0),
        labelled("a", 1, deps=(0, 3)),
        labelled("b", 2, deps=(1,)),
        labelled("c", 3, deps=(2,)),
        labelled("after", 4, deps=(3,)),
    )
    with pytest.raises(DeadlockError) as fault:
        execute(circle, options=options)
    assert fault.value.blocked == (1, 2, 3, 4)
    assert str(fault.value).splitlines() == [
        "4 of 5 tasks can never end.",
        "These wait for each other:",
        "- task 1 'a' waits for dependency task 3 'c'",
        "- task 3 'c' waits for dependency task 2 'b'",
        "- task 2 'b' waits for dependency task 1 'a'",
        "- task 4 'after' waits for dependency task 3 'c'",
    ]


def test_two_collectives_queued_in_opposite_order_deadlock_as_they_really_do(options: EngineOptions) -> None:
    crossed = program([], labelled("first", 0, 1), labelled("second", 0, 1))
    crossed.queues[1].reverse()
    with pytest.raises(DeadlockError) as fault:
        execute(crossed, options=options)
    assert "task 0 'first' waits for task 1 'second' ahead of it in lane 'lane1'" in str(fault.value)
    assert "task 1 'second' waits for task 0 'first' ahead of it in lane 'lane0'" in str(fault.value)


def test_a_task_that_depends_on_itself(options: EngineOptions) -> None:
    with pytest.raises(DeadlockError, match="task 0 'me' waits for dependency task 0 'me'"):
        execute(program([], labelled("me", 0, deps=(0,))), options=options)


def test_a_flow_that_is_starved_for_ever_is_named_with_the_resource(options: EngineOptions) -> None:
    starved = program([2.0, 1.0], work(4.0, 0, label="send"), changes=[(1.0, 0, 0.0)])
    with pytest.raises(DeadlockError, match=r"task 0 'send' started but is starved.*'?link0") as fault:
        execute(starved, options=options)
    assert fault.value.blocked == (0,)


def test_what_waits_for_a_starved_flow_is_told_apart_from_a_circle(options: EngineOptions) -> None:
    send = Task((work(4.0, 0, label="send"),), (0,))
    with pytest.raises(DeadlockError) as fault:
        execute(program([2.0], send, labelled("next", 0), changes=[(1.0, 0, 0.0)]), options=options)
    assert "wait for each other" not in str(fault.value)
    assert "task 1 'next' waits for task 0 'send' ahead of it in lane 'lane0'" in str(fault.value)
