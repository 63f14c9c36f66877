"""Short operations are repeated within a loop, long ones are cut by the budget, and the slowest rank counts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.calibration.microbenchmarks.measuring import Effort, measure, slowest


class Alone:
    """A world of one rank."""

    def barrier(self) -> None: ...

    def moment(self) -> float:
        return time.monotonic()

    def agree_on_largest(self, value: float) -> float:
        return value


@given(st.floats(1e-7, 100))
def test_a_case_keeps_to_its_budget_but_for_the_fewest_repeats(seconds):
    effort = Effort()
    loop, repeats = seconds * effort.times(seconds), effort.num_repeats(seconds)
    assert effort.fewest <= repeats <= effort.repeats
    assert repeats == effort.fewest or repeats * loop <= effort.budget * (1 + 1e-9)


@given(st.floats(1e-7, 100))
def test_a_timed_loop_lasts_long_enough_to_be_timed(seconds):
    effort = Effort()
    assert effort.times(seconds) == effort.most_times or seconds * effort.times(seconds) >= effort.shortest


def test_warm_up_repeats_are_not_recorded():
    calls: list[int] = []

    def trial(times: int) -> dict[str, float]:
        calls.append(times)
        return {"x": 1.0 if len(calls) <= 4 else 0.25}

    effort = Effort(repeats=6, warmups=2, shortest=1.0, budget=100.0)
    times, series = measure(trial, Alone(), effort)
    assert times == 1
    assert series == {"x": [0.25] * 6}
    assert len(calls) == 2 + 2 + 6


def test_a_collective_takes_as_long_as_its_slowest_rank_in_every_repeat():
    assert slowest([{"a": [1.0, 5.0]}, {"a": [3.0, 2.0], "b": [1.0, 1.0]}]) == {
        "a": [3.0, 5.0],
        "b": [1.0, 1.0],
    }


def test_ranks_that_disagree_on_the_number_of_repeats_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        slowest([{"a": [1.0, 2.0]}, {"a": [1.0]}])
