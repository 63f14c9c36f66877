"""Medians come with honest intervals, and outliers are named without moving the median."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.calibration.microbenchmarks.summary import summarise

times = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40)


@given(times)
def test_the_interval_holds_the_median(repeats):
    summary = summarise(repeats)
    assert summary.low <= summary.median <= summary.high
    assert min(repeats) <= summary.low
    assert summary.high <= max(repeats)


@given(times, st.randoms())
def test_the_order_of_repeats_does_not_matter(repeats, generator):
    shuffled = list(repeats)
    generator.shuffle(shuffled)
    first, second = summarise(repeats), summarise(shuffled)
    assert (first.median, first.low, first.high) == (second.median, second.low, second.high)


@given(times, st.floats(1e-3, 1e3))
def test_a_change_of_unit_scales_everything(repeats, factor):
    scaled = summarise([factor * value for value in repeats])
    assert scaled.median == pytest.approx(factor * summarise(repeats).median)


def test_the_interval_covers_the_true_median_in_about_95_percent_of_samples():
    generator = random.Random(1)
    hits = 0
    for _ in range(2000):
        summary = summarise([generator.lognormvariate(0.0, 0.5) for _ in range(12)])
        hits += summary.low <= 1.0 <= summary.high
    assert 0.95 <= hits / 2000 <= 0.995


def test_a_stray_repeat_is_an_outlier_and_leaves_the_median_alone():
    summary = summarise([1.0, 1.01, 0.99, 1.0, 1.02, 9.0, 0.98])
    assert summary.outliers == (5,)
    assert summary.median == pytest.approx(1.0, abs=0.011)


def test_equal_repeats_have_no_outliers_and_no_variation():
    summary = summarise([2.0] * 5)
    assert summary.outliers == ()
    assert summary.variation == 0.0


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError, match="no repeats"):
        summarise([])
