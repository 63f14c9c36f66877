"""Scores, regret, order and intervals are what they say, on rows made up for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cli.validate import write_intervals
from simulator.description import load
from simulator.validation.intervals import intervals, quantiles
from simulator.validation.scores import Row, ordered_pairs, regret, score

POSITIVE = st.floats(1e-3, 1e3)


def row(measured: float, predicted: float, source: str = "s", group: str = "") -> Row:
    return Row(source, "row", measured, predicted, "s", group)


def test_score_of_known_errors() -> None:
    found = score([row(1.0, 1.1), row(1.0, 0.9), row(2.0, 2.0)])
    assert (found.rows, found.mape, found.bias) == (3, pytest.approx(0.2 / 3), pytest.approx(0.0))
    with pytest.raises(ValueError, match="no measurements"):
        score([])


def test_regret_is_what_our_pick_costs() -> None:
    group = [row(1.0, 3.0, group="g"), row(1.2, 2.0, group="g"), row(2.0, 2.5, group="g")]
    assert regret(group) == pytest.approx(0.2)
    assert regret([row(1.0, 1.0)]) is None


def test_order_counts_only_pairs_that_differ() -> None:
    group = [row(1.0, 1.0, group="g"), row(1.04, 0.5, group="g"), row(2.0, 1.5, group="g")]
    assert ordered_pairs(group) == (2, 2)


def test_a_layout_measured_twice_is_no_alternative_to_itself() -> None:
    """A and A again, at 1.3 and 1.1 s, count as 1.2 s beside B; alone they are no group."""
    twice = [Row("s", "row", measured, 2.0, "s", "g", layout="A") for measured in (1.3, 1.1)]
    other = Row("s", "row", 1.0, 3.0, "s", "g", layout="B")
    assert regret([*twice, other]) == pytest.approx(0.2)
    assert ordered_pairs([*twice, other]) == (0, 1)
    assert regret(twice) is None
    assert ordered_pairs(twice) == (0, 0)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=20))
def test_a_perfect_rescaling_of_time_changes_no_score(pairs: list[tuple[float, float]]) -> None:
    rows = [row(m, p) for m, p in pairs]
    scaled = [row(7.0 * m, 7.0 * p) for m, p in pairs]
    assert score(scaled).mape == pytest.approx(score(rows).mape)


def test_a_source_weighs_the_same_however_many_rows_it_has() -> None:
    few, many = [row(1.0, 1.0, "few")], [row(2.0, 1.0, "many")] * 99
    low, high = quantiles({"few": _ratios(few), "many": _ratios(many)}, nominal=0.5)
    assert low < 1.5 < high


def _ratios(rows: list[Row]):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.array([r.measured / r.predicted for r in rows])


def test_coverage_leaves_each_source_out() -> None:
    by_source = {
        "a": [row(1.0 + 0.01 * i, 1.0, "a") for i in range(-5, 6)],
        "b": [row(1.0 + 0.01 * i, 1.0, "b") for i in range(-5, 6)],
        "far": [row(3.0, 1.0, "far")],
    }
    found = intervals(by_source)
    assert found.by_source["far"] == 0.0
    assert found.by_source["a"] > 0.8
    assert found.rows == 23


@pytest.mark.parametrize(("suite", "files"), [("steps", ["steps", "steps-mixtures"]), ("memory", ["steps"])])
def test_intervals_are_written_as_descriptions(suite: str, files: list[str], tmp_path: Path) -> None:
    by_source = {name: [row(1.0, 0.9), row(1.0, 1.1)] for name in ("a", "b", "a_moe", "b_moe")}
    write_intervals(suite, by_source, tmp_path / "steps.yaml")
    assert sorted(path.stem for path in tmp_path.iterdir()) == files
    for stem in files:
        found = load("interval", tmp_path / f"{stem}.yaml")
        assert found.low < 1.0 < found.high and found.rows == (8 if suite == "memory" else 4)
        assert f"validate {suite}" in found.sources["low"]
