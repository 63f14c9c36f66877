"""The GEMM model keeps to physics whatever the shape and the GPU."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.kernels.chip import element_bytes
from simulator.costs.kernels.gemm import UNALIGNED, gemm_seconds, throttled
from simulator.validation import kernel_data
from tests.costs.kernels.gpus import CALIBRATED, calibration, chip

SIZES = st.integers(1, 40_000)
NAMES = st.sampled_from(CALIBRATED)


def seconds(name: str, m, n, k, dtype: str = "bf16", **options) -> np.ndarray:
    parameters = calibration(name).gemm[dtype]
    chosen = options.pop("chip", chip(name))
    return gemm_seconds(m, n, k, chip=chosen, parameters=parameters, dtype=dtype, **options)


@given(NAMES, SIZES, SIZES, SIZES, st.integers(1, 64), st.booleans())
def test_no_faster_than_peak_and_bandwidth_allow(name, m, n, k, batch, accumulate) -> None:
    took = float(seconds(name, m, n, k, batch=batch, accumulate=accumulate))
    moved = batch * (2.0 * (m * k + n * k) + (8.0 if accumulate else 2.0) * m * n)
    assert took >= 2.0 * batch * m * n * k / chip(name).peak("bf16")
    assert took >= moved / chip(name).bandwidth


@given(NAMES, st.integers(64, 8192), st.integers(64, 8192), st.integers(256, 16384))
def test_doubling_a_dimension_never_makes_it_faster(name, m, n, k) -> None:
    once, rows, columns, depth = seconds(name, [m, 2 * m, m, m], [n, n, 2 * n, n], [k, k, k, 2 * k])
    assert min(rows, columns, depth) >= 0.999 * once


@given(NAMES, st.integers(64, 4096), st.integers(64, 4096), st.integers(64, 4096), st.integers(2, 64))
def test_a_batch_costs_at_least_one_and_at_most_all_of_its_products(name, m, n, k, batch) -> None:
    one, together = float(seconds(name, m, n, k)), float(seconds(name, m, n, k, batch=batch))
    # Together they may be throttled, which each alone was not.
    assert one <= together * 1.001
    assert together <= batch * one * (1 + calibration(name).gemm["bf16"].throttle)


@given(NAMES, st.integers(512, 16384), st.integers(512, 16384), st.integers(512, 16384))
def test_rows_and_columns_may_change_places(name, m, n, k) -> None:
    assert float(seconds(name, m, n, k)) == pytest.approx(float(seconds(name, n, m, k)))


@given(NAMES, st.integers(1024, 16384), st.integers(1024, 16384), st.integers(512, 16384))
def test_accumulating_in_fp32_costs_extra(name, m, n, k) -> None:
    assert float(seconds(name, m, n, k, accumulate=True)) >= float(seconds(name, m, n, k))


@given(NAMES, st.integers(1024, 8192), st.integers(1024, 8192), st.integers(1024, 8192))
def test_a_chip_that_is_better_in_everything_is_never_slower(name, m, n, k) -> None:
    small = chip(name)
    peaks = tuple((dtype, 2 * peak) for dtype, peak in small.peaks)
    big = replace(small, sms=2 * small.sms, peaks=peaks, bandwidth=2 * small.bandwidth)
    assert float(seconds(name, m, n, k, chip=big)) <= 1.001 * float(seconds(name, m, n, k))


@pytest.mark.parametrize("name", kernel_data.GPUS)
def test_very_large_products_keep_the_measured_share_of_peak(name) -> None:
    """From 0.81 on the A100 down to 0.58 on the GB200: power, not tiles, sets the ceiling."""
    rows = kernel_data.gemms(name)
    rows = rows[(rows.m >= 8192) & (rows.n >= 8192) & (rows.k >= 8192)]
    least = 2.0 * rows.m * rows.n * rows.k / chip(name).peak("bf16")
    ours = least / seconds(name, rows.m, rows.n, rows.k)
    assert float(ours.mean()) == pytest.approx(float((least / rows.seconds).mean()), abs=0.02)


def test_one_row_beyond_a_full_wave_costs_a_wave_on_the_a100() -> None:
    """108 tiles of 256 x 128 fill the A100 once: measured 58 us at m = 2304, 110 us at 2305 (n 1536, k 2048)."""
    full, beyond = seconds("a100-sxm-80", [2304, 2305], 1536, 2048)
    assert beyond / full > 1.6


def test_a_narrow_format_is_faster_where_the_product_is_large() -> None:
    for name in ("h100-sxm", "b200"):
        assert float(seconds(name, 8192, 8192, 8192, "fp8")) < 0.65 * float(seconds(name, 8192, 8192, 8192))


def test_throttling_comes_with_duration_and_work() -> None:
    short, long = throttled(np.array([1e-5, 1.0]), np.array([1.0, 1.0]), 0.1, 1e-3)
    assert short == pytest.approx(1e-5, rel=1e-4)
    assert long == pytest.approx(1.1, rel=1e-4)
    assert throttled(np.array([1.0]), np.array([0.0]), 0.1, 1e-3)[0] == 1.0


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown number format 'int3'"):
        element_bytes("int3")


@given(NAMES, st.integers(64, 16384), st.integers(64, 16384), st.integers(64, 16384))
def test_rows_that_are_no_whole_words_cost_time_where_multiplying_is_what_takes_it(name, m, n, k) -> None:
    whole, pieces = (float(seconds(name, m, n, k, aligned=aligned)) for aligned in (True, False))
    throttle = calibration(name).gemm["bf16"].throttle
    assert whole <= pieces <= whole / UNALIGNED * (1 + throttle)
