"""Scores and the order of alternatives, on made-up rows."""

from __future__ import annotations

import pytest

from simulator.validation.minicluster.judging import judged, noise, order, score, summary
from simulator.validation.minicluster.report import as_text


def row(name: str, measured: float, predicted: float, spread: float = 0.01, group: str = "g"):
    return judged("steps", name, measured, predicted, spread, group=group)


def test_a_score_is_of_relative_errors():
    found = score([row("a", 1.0, 1.1), row("b", 2.0, 1.8)])
    assert (found.mape, found.bias) == (pytest.approx(0.1), pytest.approx(0.0))


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="nothing to score"):
        score([])


def test_pairs_closer_than_twice_the_noise_have_no_order():
    rows = [row("a", 1.0, 1.2), row("b", 1.015, 1.0), row("c", 1.5, 1.1)]
    right, pairs, wrong = order(rows)
    assert (right, pairs) == (1, 2)
    assert wrong == ["a against c (50.0% apart)"]


def test_only_cases_of_one_group_are_compared():
    assert (
        order([row("a", 1.0, 1.0, group="g"), row("b", 2.0, 0.5, group="h"), row("c", 2.0, 0.5, group="")])[1]
        == 0
    )


def test_noise_is_half_the_range():
    assert noise([1.0]) == 0.0
    assert noise([0.9, 1.0, 1.1]) == pytest.approx(0.1)


def test_steps_off_by_more_than_a_tenth_are_named():
    found = summary([row("a", 1.0, 1.05), row("b", 1.0, 0.85)])
    assert found["over_a_tenth"] == ["b"]
    text = as_text({**found, "rows": []})
    assert "| steps | 2 | 10.0% | 4% | -5.0% | -15.0% | 1.0% |" in text
