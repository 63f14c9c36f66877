"""A kernel that outlasts the power controller is slowed for itself, a shorter one for what the GPU draws on average."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from simulator.costs.kernels import calibration_for, kernel_seconds
from simulator.costs.power import rested
from simulator.costs.software import load_software
from simulator.program.pricing import ClassPricing
from simulator.simulation import simulate
from simulator.workloads.operators import Gemm, MemoryBound


def pricing(limit: str, products: float) -> ClassPricing:
    """Of an H100 that spends so much of its time on products and streams for the rest of it."""
    cluster = simulator.load_cluster("hgx-h100-cluster", gpus=8, overrides={"node.gpu.power.max": limit})
    built = simulate(cluster, simulator.load_workload("llama3-8b", {"plan.software": "ideal"})).built
    found: ClassPricing = built.pricings[0].at_load(products, 1.0 - products, 0.0, built.pricings[0].limited)
    return found


FULL, LOW = pricing("700 W", 0.5), pricing("500 W", 0.5)


@settings(max_examples=30, deadline=None)
@given(size=st.sampled_from([512, 1024, 2048, 4096, 8192, 16384]), depth=st.sampled_from([1024, 4096, 16384]))
def test_the_factor_is_between_the_mean_and_that_of_products_alone(size: int, depth: int) -> None:
    product = Gemm(size, size, depth, "bf16")
    for one in (FULL, LOW):
        (seconds,) = one._at_full_clock(product)
        alone = one.at_load(1.0, 0.0, 0.0, one.limited).clocks[0]
        assert one.clocks[0] - 1e-12 <= one.kernel_seconds(product) / seconds <= alone + 1e-12


def test_long_products_take_what_was_measured_of_them() -> None:
    """Under the limit they were measured with, however little of the step they are."""
    product = Gemm(32768, 16384, 16384, "bf16")
    gpu, calibration = FULL.limited[0]
    assert calibration == calibration_for(gpu)
    measured = kernel_seconds(product, gpu, calibration)
    assert kernel_seconds(product, gpu, rested(calibration)) < measured
    little = FULL.at_load(0.1, 0.9, 0.0, FULL.limited)
    assert little.kernel_seconds(product) == pytest.approx(measured, rel=0.01)


def test_kernels_of_microseconds_run_at_the_mean_clock() -> None:
    product = Gemm(512, 512, 512, "bf16")
    assert LOW.kernel_seconds(product) == pytest.approx(
        LOW.clocks[0] * LOW._at_full_clock(product)[0], rel=1e-4
    )


def test_streaming_is_not_slowed() -> None:
    copy = MemoryBound("copy", 1e9, 1e9)
    assert LOW.kernel_seconds(copy) == FULL.kernel_seconds(copy)
    assert load_software("ideal").compute_efficiency == 1.0
