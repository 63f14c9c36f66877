"""Activity: equal work at equal times is no error, whatever it is cut into; a delay is its own size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.validation.minicluster.activity import activity, deviation, predicted_activity
from simulator.validation.minicluster.cases import FULL, STRATEGIES, step, switch
from simulator.validation.minicluster.predicting import cluster_of, step_prediction, workload_of
from simulator.validation.minicluster.recipe import recipes

lengths = st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.01, 2.0)), min_size=1, max_size=10)


def spans(pairs: list[tuple[float, float]], delay: float = 0.0) -> list[tuple[float, float]]:
    """Stretches of computing after pauses."""
    now, found = delay, []
    for pause, work in pairs:
        found.append((now + pause, now + pause + work))
        now += pause + work
    return found


@given(lengths)
def test_what_is_as_predicted_has_no_deviation(pairs):
    assert deviation(activity(spans(pairs)), activity(spans(pairs))) == pytest.approx(0.0, abs=1e-9)


@given(lengths, st.floats(0.0, 3.0))
def test_a_delay_of_everything_deviates_by_itself(pairs, delay):
    assert deviation(activity(spans(pairs)), activity(spans(pairs, delay))) == pytest.approx(delay, abs=1e-6)


def test_how_work_is_cut_into_stretches_does_not_matter():
    whole, pieces = [(1.0, 4.0)], [(1.0, 2.0), (2.0, 2.5), (2.5, 4.0)]
    assert deviation(activity(pieces), activity(whole)) == pytest.approx(0.0)
    assert deviation(activity(whole), activity(pieces)) == pytest.approx(0.0)


def test_other_work_than_predicted_is_refused():
    with pytest.raises(ValueError, match="did not compute what was predicted"):
        deviation(activity([(0.0, 1.0)]), activity([(0.0, 2.0)]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predicted_ranks_compute_what_measured_ranks_are_asked_to(strategy):
    case = step(strategy, 4, switch(100))
    predicted = predicted_activity(step_prediction(case))
    asked = recipes(cluster_of(case.network, case.ranks), workload_of(case))
    for rank, recipe in enumerate(asked):
        actions = [a for c in recipe.chunks for layer in c.layers for a in (*layer.forward, *layer.backward)]
        seconds = recipe.num_micro_batches * sum(a.seconds for a in actions) + recipe.optimizer_seconds
        assert predicted[rank].work[-1] == pytest.approx(seconds, rel=1e-6)


def test_the_suite_has_two_dozen_cases_of_steps_and_each_a_name_of_its_own():
    names = [case.name for case in FULL.steps]
    assert len(set(names)) == len(names) >= 24
    assert {case.ranks for case in FULL.steps} == {2, 4, 8}
    assert sum(not case.developed_on for case in FULL.steps) >= 12
