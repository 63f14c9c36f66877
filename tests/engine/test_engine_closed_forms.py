"""Small programs whose times can be worked out by hand, with and without the engine's savings."""

from __future__ import annotations

from math import inf

import pytest

from simulator.engine import PLAIN, EngineOptions, execute
from simulator.program.program import Program, Task
from tests.engine.building import program, work


@pytest.fixture(params=[EngineOptions(), PLAIN], ids=["fast", "plain"])
def ends(request: pytest.FixtureRequest):
    def run(what: Program) -> list[float]:
        return execute(what, options=request.param).end.tolist()

    return run


def test_a_task_alone_takes_its_latency_and_its_work_at_the_scarcest_resource(ends) -> None:
    assert ends(program([4.0, 2.0], work(6.0, 0, 1, latency=0.5))) == [3.5]


def test_a_cap_holds_even_on_an_idle_resource(ends) -> None:
    assert ends(program([4.0], work(6.0, 0, cap=1.5))) == [4.0]


def test_two_equal_flows_on_a_link_take_twice_as_long(ends) -> None:
    assert ends(program([2.0], work(4.0, 0), work(4.0, 0))) == [4.0, 4.0]


def test_when_one_flow_ends_the_other_speeds_up(ends) -> None:
    """1 and 3 units on a link of 1: half each until t=2, then the second alone has 2 units left."""
    assert ends(program([1.0], work(1.0, 0), work(3.0, 0))) == [2.0, 4.0]


def test_a_late_flow_slows_the_one_under_way(ends) -> None:
    """Alone for 1 s (2 of 4 units done), then half each: both have 2 units left at 0.5 per second... of a link of 2."""
    assert ends(program([2.0], work(4.0, 0), work(2.0, 0, latency=1.0))) == [3.0, 3.0]


def test_rates_are_in_proportion_to_weights(ends) -> None:
    """3:1 on a link of 4; when the first is done at t=2, the other has 4 of 6 units left for the whole link."""
    assert ends(program([4.0], work(6.0, 0, weight=3.0), work(6.0, 0))) == [2.0, 3.0]


def test_latency_draws_nothing(ends) -> None:
    assert ends(program([1.0], work(2.0, 0), work(2.0, 0, latency=2.0))) == [2.0, 4.0]


def test_a_flow_across_two_links_is_bound_by_the_shared_one(ends) -> None:
    """Both on link 0 (0.5 each); the third has what is left of link 1: 2.5 of 3."""
    assert ends(program([1.0, 3.0], work(1.0, 0, 1), work(1.0, 0), work(5.0, 1))) == [2.0, 2.0, 2.0]


def test_a_collective_slows_the_kernel_whose_gpu_it_draws_on(ends) -> None:
    """The collective takes a quarter of the GPU while it runs: its weight is its own full rate, 100 bytes/s."""
    collective = work(200.0, draws=((0, 0.25 / 100.0), (1, 1.0)), weight=100.0)
    kernel = work(3.0, 0)
    # both grow together until the GPU is full: theta x (1 + 0.25) = 1, so 0.8 of each one's speed until t=2.5
    assert ends(program([1.0, 100.0], kernel, collective)) == pytest.approx([3.5, 2.5], rel=1e-12)


def test_a_rendezvous_starts_when_it_heads_the_last_of_its_lanes(ends) -> None:
    first, second = Task((work(1.0),), (0,)), Task((work(3.0),), (1,))
    both = Task((work(2.0),), (0, 1))
    after = Task((work(1.0),), (0,))
    assert ends(program([], first, second, both, after)) == [1.0, 3.0, 5.0, 6.0]


def test_a_lane_keeps_its_order_even_if_a_later_task_could_run(ends) -> None:
    slow = Task((work(5.0),), (0,))
    waiting, could_run = Task((work(1.0),), (1,), deps=(0,)), Task((work(1.0),), (1,))
    assert ends(program([], slow, waiting, could_run)) == [5.0, 6.0, 7.0]


def test_a_task_without_phases_is_a_barrier(ends) -> None:
    tasks = [Task((work(1.0),), (0,)), Task((work(2.0),), (1,)), Task((), (2,), deps=(0, 1))]
    assert ends(program([], *tasks, Task((work(1.0),), (2,)))) == [1.0, 2.0, 2.0, 3.0]


def test_a_capacity_that_halves_midway(ends) -> None:
    assert ends(program([2.0], work(4.0, 0), changes=[(1.0, 0, 1.0)])) == [3.0]


def test_a_capacity_change_at_time_zero_is_the_capacity(ends) -> None:
    assert ends(program([2.0], work(4.0, 0), changes=[(0.0, 0, 4.0)])) == [1.0]


def test_a_capacity_that_grows_is_shared_anew(ends) -> None:
    """0.5 each for 1 s, then 1.5 each: the rest of the 1st takes 1/3 s, and the 2nd ends alone at 3."""
    times = ends(program([1.0], work(1.0, 0), work(4.0, 0), changes=[(1.0, 0, 3.0)]))
    assert times == pytest.approx([4 / 3, 4 / 3 + 1.0], rel=1e-12)


def test_an_outage_stops_the_flow_and_its_end_resumes_it(ends) -> None:
    outage = [(1.0, 0, 0.0), (6.0, 0, 2.0)]
    assert ends(program([2.0], work(4.0, 0), changes=outage)) == [7.0]
    assert ends(program([2.0], work(2.0, 0, latency=3.0), changes=outage)) == [7.0]


def test_capacity_changes_after_the_end_do_not_prolong_the_program(ends) -> None:
    assert ends(program([2.0], work(4.0, 0), changes=[(50.0, 0, 1.0)])) == [2.0]


def test_work_on_an_endless_resource_takes_no_time(ends) -> None:
    assert ends(program([inf], work(4.0, 0, latency=1.0), work(2.0, 0))) == [1.0, 0.0]


def test_a_chain_disturbed_midway_and_left_alone_again(ends) -> None:
    """Ten phases of 1 on a link of 1; at 2.5 a flow of 1 joins for 2 s, so the chain ends 1 s late."""
    chain = Task((work(1.0, 0, label="a"), work(1.0, 0, latency=0.0, cap=1.0)) * 5, (0,))
    assert ends(program([1.0], chain, work(1.0, 0, latency=2.5))) == [11.0, 4.5]


def test_phases_of_a_disturbed_chain_are_found_again() -> None:
    chain = Task(tuple(work(1.0, 0, latency=0.5, label=str(k)) for k in range(4)), (0,))
    # alone until 2.0 (phase 1 begins its work), then shares until the visitor's 1 unit is done at 4.0
    timeline = execute(program([1.0], chain, work(1.0, 0, latency=2.0)))
    spans = timeline.spans
    mine = spans.task == 0
    assert spans.start[mine].tolist() == [0.0, 1.5, 4.0, 5.5]
    assert spans.work_start[mine].tolist() == [0.5, 2.0, 4.5, 6.0]
    assert spans.end[mine].tolist() == [1.5, 4.0, 5.5, 7.0]


def test_use_history_shows_each_rate() -> None:
    timeline = execute(program([1.0], work(1.0, 0), work(3.0, 0, latency=0.5)), trace=True)
    times, use = timeline.use_history(0)
    assert times.tolist() == [0.0, 0.5, 1.5, 4.0]
    assert use.tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="trace=True"):
        execute(program([1.0], work(1.0, 0))).use_history(0)


def test_one_event_suffices_for_a_chain_that_nobody_disturbs() -> None:
    chain = Task(tuple(work(1.0, k % 2) for k in range(1000)), (0,))
    elsewhere = Task((work(1.0, 0),), (1,), deps=(0,))
    timeline = execute(program([1.0, 1.0], chain, elsewhere))
    assert timeline.makespan == 1001.0
    assert timeline.num_events == 2
    assert timeline.num_solves == 0


def test_work_that_ends_as_its_capacity_falls_to_zero_has_ended(ends) -> None:
    """Thirds and tenths add up to 1 s but for a last bit, which must not wait for the capacity to return."""
    third = 1.0 / 3.0
    outage = [(1.0, 0, 0.0), (9.0, 0, 1.0)]
    assert ends(program([third], work(third, 0), changes=outage)) == [1.0]
    chain = Task((work(0.1, 0, label="a", cap=1.0),) * 3 + (work(0.7, 0, label="b"),), (0,))
    assert ends(program([1.0], chain, changes=outage)) == pytest.approx([1.0], rel=1e-12)


def test_a_phase_has_ended_even_if_the_next_one_stalls() -> None:
    chain = Task((work(1.0, 0), work(1.0, 1)), (0,))
    spans = execute(program([1.0, 1.0], chain, changes=[(0.0, 1, 0.0), (5.0, 1, 1.0)])).spans
    assert spans.end.tolist() == [1.0, 6.0]


def test_a_chain_disturbed_for_a_moment_is_one_event_again_afterwards() -> None:
    chain = Task(tuple(work(1.0, k % 2) for k in range(1000)), (0,))
    timeline = execute(program([1.0, 1.0], chain, Task((work(1.0, 0),), (1,))))
    assert timeline.makespan == 1001.0
    assert timeline.num_events < 10
