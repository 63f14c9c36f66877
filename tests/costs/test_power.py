"""The power limit slows products, never speeds them up, and less the higher it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.kernels import calibration_for
from simulator.costs.power import rested, slowdown, unlimited_power
from simulator.description import load
from simulator.hardware.gpu import GPU

SHARES = st.floats(0.0, 1.0)


def h100(limit: float) -> GPU:
    gpu: GPU = load("gpu", "h100-sxm", {"power.max": f"{limit} W"})
    return gpu


@given(SHARES, SHARES, st.floats(300.0, 1500.0), st.floats(1.0, 2.0))
def test_a_higher_limit_never_slows(products: float, rest: float, limit: float, more: float) -> None:
    streaming = rest * (1.0 - products)
    low, high = h100(limit), h100(limit * more)
    calibration = calibration_for(low)
    slow = slowdown(low, calibration, products, streaming)
    fast = slowdown(high, calibration, products, streaming)
    assert slow >= fast >= 1.0


def test_products_alone_run_as_slowly_as_long_kernels_were_measured() -> None:
    gpu = h100(700.0)
    calibration = calibration_for(gpu)
    assert abs(slowdown(gpu, calibration, 1.0, 0.0) - (1.0 + calibration.gemm["bf16"].throttle)) < 1e-9
    assert unlimited_power(gpu, calibration) > 700.0


def test_the_same_chip_under_a_lower_limit_would_draw_as_much() -> None:
    full, capped = h100(700.0), load("gpu", "h100-sxm-96")  # 500 W
    own = unlimited_power(full, calibration_for(full))
    assert unlimited_power(capped, calibration_for(capped)) == own
    expected = (own / 500.0) ** (1 / 3)
    assert abs(slowdown(capped, calibration_for(capped), 1.0, 0.0) - expected) < 1e-9


def b200(limit: float) -> GPU:
    gpu: GPU = load("gpu", "b200", {"power.max": f"{limit} W"})
    return gpu


@given(SHARES, SHARES, st.floats(250.0, 1500.0), st.floats(1.0, 2.0))
def test_below_the_voltage_floor_too_a_higher_limit_never_slows(
    products: float, rest: float, limit: float, more: float
) -> None:
    streaming = rest * (1.0 - products)
    low, high = b200(limit), b200(limit * more)
    calibration = calibration_for(low)
    slow = slowdown(low, calibration, products, streaming)
    assert slow >= slowdown(high, calibration, products, streaming) - 1e-12
    assert slow >= 1.0


def test_with_voltage_at_its_floor_the_clock_goes_with_the_watts_above_idle() -> None:
    """900 W are the floor: from there on 360 W less (of 760 above idle) are 400 / 760 of the clock."""
    calibration = calibration_for(b200(1000.0))
    at_floor, below = (float(slowdown(b200(watts), calibration, 1.0, 0.0)) for watts in (900.0, 540.0))
    assert abs(below / at_floor - 760.0 / 400.0) < 1e-9
    own = unlimited_power(b200(1000.0), calibration)
    assert abs(at_floor - (own / 900.0) ** (1 / 3)) < 1e-9


def test_products_of_a_b200_under_750_watts_take_what_was_published() -> None:
    """cuBLAS, 8,192 each way: 1,088 and 1,142 TFLOP/s (facebookexperimental/triton#854 and #1003)."""
    from simulator.costs.kernels import kernel_seconds
    from simulator.workloads.operators import Gemm

    gpu: GPU = load("gpu", "b200-750w")
    calibration = calibration_for(gpu)
    product = Gemm(8192, 8192, 8192, "bf16")
    seconds = kernel_seconds(product, gpu, rested(calibration)) * float(slowdown(gpu, calibration, 1.0, 0.0))
    assert 1050e12 < product.flops / seconds < 1150e12


def test_at_full_clock_nothing_is_slower_than_measured() -> None:
    from simulator.costs.kernels import kernel_seconds
    from simulator.workloads.operators import Gemm

    gpu = h100(700.0)
    calibration = calibration_for(gpu)
    for size in (512, 2048, 8192, 16384):
        product = Gemm(size, size, size, "bf16")
        assert kernel_seconds(product, gpu, rested(calibration)) <= kernel_seconds(product, gpu, calibration)
