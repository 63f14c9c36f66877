"""Formats with scales per block, as the library that trains runs them: products beside those in fp8, and casts."""

from dataclasses import replace

import pytest

from simulator.costs.kernels import kernel_seconds
from simulator.costs.power import rested
from simulator.validation import kernel_data
from simulator.workloads.layers import Shard
from simulator.workloads.modules.gemms import cast
from simulator.workloads.operators import Gemm, GroupedGemm, Kernel, MemoryBound
from tests.costs.kernels.gpus import calibration, gpu

BLACKWELL = ("b200", "b300", "gb200", "gb300")


@pytest.mark.parametrize("name", BLACKWELL)
@pytest.mark.parametrize("dtype", ["mxfp8", "nvfp4"])
def test_products_stand_to_those_in_fp8_as_in_transformer_engine(name: str, dtype: str) -> None:
    measured = kernel_data.library_gemms()

    def block(form: str) -> float:
        products = (Gemm(m, n, k, form) for m, n, k in kernel_data.LIBRARY_SHAPES)
        return sum(kernel_seconds(product, gpu(name), rested(calibration(name))) for product in products)

    assert block(dtype) / block("fp8") == pytest.approx(measured[dtype] / measured["fp8"], rel=2e-3)


@pytest.mark.parametrize(
    "kernel", [Gemm(4096, 4096, 4096, "mxfp8"), GroupedGemm(8, 8192, 4096, 2048, "mxfp8")]
)
def test_the_pace_of_the_library_is_a_factor_and_no_product_beats_the_peak(kernel: Kernel) -> None:
    chip, measured = gpu("b300"), calibration("b300")
    slow, plain, fast = (
        kernel_seconds(
            kernel, chip, measured.model_copy(update={"library": {"mxfp8": pace}, "name": str(pace)})
        )
        for pace in (2.0, 1.0, 1e-3)
    )
    assert slow == pytest.approx(2.0 * plain)
    assert fast == pytest.approx(kernel.flops / chip.peak("mxfp8"))
    other = replace(kernel, dtype="fp8")  # type: ignore[arg-type]
    assert kernel_seconds(other, chip, measured) == kernel_seconds(
        other, chip, measured.model_copy(update={"library": {}, "name": "without"})
    )


def test_casts_cost_what_transformer_engine_took_with_narrow_operands_and_without() -> None:
    """Nothing was fitted to these 1.82 ms: inputs are written as rows and columns, weights as rows alone."""
    chip, measured = gpu("b300"), calibration("b300")
    casts = [
        MemoryBound("cast_block", bytes_per * count, 0.0)
        for rows, outputs, inputs in kernel_data.LIBRARY_SHAPES
        for bytes_per, count in ((4 + 2 / 32, rows * inputs), (3 + 1 / 32, inputs * outputs))
    ]
    took = sum(kernel_seconds(kernel, chip, measured) for kernel in casts)
    assert took == pytest.approx(8.984e-3 - 7.161e-3, rel=0.1)


def test_only_casts_with_scales_per_block_are_the_slower_ones() -> None:
    def operators(dtype: str, scaling: str) -> list[str]:
        shard = Shard(micro_batch=1, sequence_length=4096, gemm_dtype=dtype, scaling=scaling)
        return [one.what.op for one in cast("fc1", "input", 1e6, dtype, shard)]  # type: ignore[union-attr]

    assert operators("mxfp8", "block") == ["cast_block"]
    assert operators("fp8", "delayed") == ["cast"]
    assert operators("fp8", "current") == ["reduce", "cast"]
