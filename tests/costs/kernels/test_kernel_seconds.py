"""`kernel_seconds` prices every operator on every GPU of the catalogue, from its own or a borrowed calibration."""

import typing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from simulator.costs.kernels import MODELS, calibration_for, chip_of, kernel_seconds
from simulator.costs.kernels.transfer import NEAREST, gemm_parameters
from simulator.description import catalogue
from simulator.hardware.gpu import Architecture
from simulator.validation import kernel_data
from simulator.workloads.operators import Attention, Gemm, GroupedGemm, Kernel, MemoryBound
from tests.costs.kernels.gpus import CALIBRATED, calibration, gpu

ONE_OF_EACH = (
    Gemm(2048, 4096, 1024, "fp16"),
    Gemm(2048, 4096, 1024, "fp16", accumulate=True),
    GroupedGemm(8, 4096, 2048, 1024, "fp16"),
    Attention(2, 16, 16, 2048, 2048, 128, 128, True, "fp16"),
    Attention(2, 16, 4, 2048, 2048, 64, 64, True, "fp16", backward=True),
    MemoryBound("norm", 1e7, 1e7),
    MemoryBound("optimizer", 1e9, 1e9, kernels=4),
)


@pytest.mark.parametrize("name", catalogue.names("gpu"))
def test_every_gpu_of_the_catalogue_has_a_time_for_every_kernel(name) -> None:
    chosen = gpu(name)
    if chosen.architecture == "cpu":
        pytest.skip("emulated: it has only the kernels that its calibration defines")
    half = "fp16" if {"fp16", "bf16"} & set(chosen.dense_peak) else "fp32"  # older chips have no half rate
    for kernel in ONE_OF_EACH:
        if not isinstance(kernel, MemoryBound):
            kernel = replace(kernel, dtype=half)
        took = kernel_seconds(kernel, chosen, calibration(name))
        least = kernel.flops / chip_of(chosen).peak(half)
        moved = getattr(kernel, "bytes_read", 0.0) + getattr(kernel, "bytes_written", 0.0)
        assert least <= took <= 10 * (least + moved / chosen.memory.bandwidth) + 1e-3, (name, kernel)


@pytest.mark.parametrize(("name", "slows"), [("h100-sxm", True), ("gb200", True), ("a100-sxm-80", False)])
def test_a_norm_reads_rows_again_that_have_left_the_cache(name, slows) -> None:
    def took(row: float) -> float:
        kernel = MemoryBound("norm", 1e9, 1e9, row=row)
        return kernel_seconds(kernel, chip_of(gpu(name)), calibration(name))

    kept = calibration(name).memory.kept_row or 1e4
    assert took(0.0) == took(kept / 2) == took(kept)
    assert (took(kept) < took(2 * kept) < took(8 * kept)) == slows
    assert took(1e9) <= 1.5 * took(0.0)


def test_every_kernel_type_has_a_model() -> None:
    assert set(MODELS) == set(typing.get_args(Kernel))


def test_every_architecture_is_near_to_something_measured() -> None:
    """But for `cpu`, which stands for emulated accelerators: those name a calibration of their own."""
    assert set(NEAREST) == set(typing.get_args(Architecture)) - {"cpu"}


def test_measured_gpus_use_their_own_calibration_and_others_say_what_they_borrow() -> None:
    for name in CALIBRATED:
        assert calibration(name).gpu == name
        assert calibration(name).transferred_from is None
    assert calibration("v100-sxm2-32").transferred_from == "v100-sxm2-16"
    assert calibration("p100").transferred_from == "p100-pcie"
    assert calibration("h100-pcie").transferred_from == "h100-sxm"
    assert calibration("mi300x").transferred_from == "h100-sxm"


def test_borrowed_parameters_scale_with_the_datasheet() -> None:
    """An MI250X with the A100's rates and SMs takes the A100's times: nothing but the datasheet tells them apart."""
    borrower = gpu("mi250x-gcd")
    rates = gpu("a100-sxm-80")
    same = borrower.model_copy(
        update={"sms": rates.sms, "dense_peak": rates.dense_peak, "memory": rates.memory}
    )
    kernel = Gemm(4096, 4096, 4096, "fp16")
    assert kernel_seconds(kernel, same, calibration_for(same)) == kernel_seconds(
        kernel, rates, calibration("a100-sxm-80")
    )


def test_formats_without_measurements_take_the_nearest() -> None:
    volta, pascal = calibration("v100-sxm2-16"), calibration("p100")
    assert gemm_parameters(volta, "fp16") == volta.gemm["bf16"] != volta.gemm["fp32"]
    assert gemm_parameters(volta, "tf32") == volta.gemm["fp32"]  # which has no TF32
    assert gemm_parameters(pascal, "fp16") == pascal.gemm["fp32"]  # which has no matrix units
    hopper = calibration("h100-sxm")
    assert gemm_parameters(hopper, "nvfp4") == hopper.gemm["mxfp8"]
    assert gemm_parameters(hopper, "fp16") == hopper.gemm["bf16"]


def test_what_cannot_be_priced_is_refused_by_name() -> None:
    a100 = gpu("a100-sxm-80")
    with pytest.raises(ValueError, match="no fp8 rate"):
        kernel_seconds(Gemm(128, 128, 128, "fp8"), a100, calibration("a100-sxm-80"))
    with pytest.raises(ValueError, match="unknown attention implementation 'flash9'"):
        kernel_seconds(
            Attention(1, 1, 1, 128, 128, 64, 64, True, "bf16", implementation="flash9"),
            a100,
            calibration("a100-sxm-80"),
        )
    with pytest.raises(TypeError, match="no cost model for SimpleNamespace"):
        kernel_seconds(Unhashed(), a100, calibration("a100-sxm-80"))
    unknown = SimpleNamespace(architecture="abacus", calibration=None, name="x")
    with pytest.raises(ValueError, match="no kernel calibration is near 'abacus'"):
        calibration_for(unknown)


class Unhashed(SimpleNamespace):
    __hash__ = object.__hash__


Unhashed.__name__ = "SimpleNamespace"


def test_implementations_of_attention_differ_by_their_relative_speed() -> None:
    h100 = gpu("h100-sxm")
    took = {
        name: kernel_seconds(
            Attention(4, 32, 32, 8192, 8192, 128, 128, True, "bf16", implementation=name),
            h100,
            calibration("h100-sxm"),
        )
        for name in ("flash1", "flash2", "flash3", "cudnn")
    }
    assert took["cudnn"] < took["flash3"] < took["flash2"] < took["flash1"]
    assert 1.5 < took["flash2"] / took["flash3"] < 2.0  # Shah et al. 2024


def test_directions_of_an_implementation_may_differ() -> None:
    a100, own = gpu("a100-sxm-80"), calibration("a100-sxm-80")
    speeds = own.attention.implementations
    for backward, name in ((False, "triton"), (True, "triton_backward")):
        shape = (4, 16, 16, 8192, 8192, 128, 128, True, "bf16")
        second, triton = (
            kernel_seconds(Attention(*shape, implementation=which, backward=backward), a100, own)
            for which in ("flash2", "triton")
        )
        assert triton == pytest.approx(second / speeds[name][128])


def test_the_fullest_expert_decides_when_it_outweighs_the_rest() -> None:
    h100, own = gpu("h100-sxm"), calibration("h100-sxm")
    even = kernel_seconds(GroupedGemm(8, 8192, 4096, 2048, "bf16"), h100, own)
    skewed = kernel_seconds(GroupedGemm(8, 8192, 4096, 2048, "bf16", imbalance=8.0), h100, own)
    alone = kernel_seconds(Gemm(8192, 4096, 2048, "bf16"), h100, own)
    assert even <= skewed
    assert skewed == pytest.approx(alone)


def test_memory_bound_time_is_bytes_over_bandwidth_plus_a_latency_for_each_kernel() -> None:
    a100, own = gpu("a100-sxm-80"), calibration("a100-sxm-80")
    small, large = (kernel_seconds(MemoryBound("add", size, 0.0), a100, own) for size in (1e6, 1e9 + 1e6))
    assert large - small == pytest.approx(1e9 / (own.memory.efficiency["add"] * a100.memory.bandwidth))
    twice = kernel_seconds(MemoryBound("add", 1e6, 0.0, kernels=2), a100, own)
    assert twice - small == pytest.approx(own.memory.latency)


def test_an_operator_without_measurements_streams_and_a_backward_pass_falls_back_to_the_forward() -> None:
    a100, own = gpu("a100-sxm-80"), calibration("a100-sxm-80")

    def took(op: str) -> float:
        return kernel_seconds(MemoryBound(op, 1e8, 1e8), a100, own)

    assert took("something") == took("elementwise")
    assert took("embedding_backward") == took("embedding")
    assert took("norm") > took("elementwise")


def test_quantisation_has_parameters_of_its_own() -> None:
    b200, own = gpu("b200"), calibration("b200")
    found = own.quantize["fp8"]
    took = kernel_seconds(MemoryBound("quantize_fp8", 2e8, 1e8), b200, own)
    assert took == pytest.approx(found.latency + 3e8 / (found.efficiency * b200.memory.bandwidth))


@pytest.mark.parametrize("name", ["a100-sxm-80", "h100-sxm"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_flash_attention_1_is_as_fast_as_published_beside_2(name: str, head_dim: int) -> None:
    """TFLOP/s of forward and backward together, causal, 16,384 tokens, 2,048 / head_dim heads (Dao 2023)."""
    rows = kernel_data.table("attention_published", "csv")
    mine = (rows.gpu == name) & (rows.head_dim == head_dim) & (rows.causal == 1) & (rows.seq >= 2048)
    ours, published = [], []
    for row in rows[mine & (rows.implementation == "flash1")].itertuples():
        heads = 2048 // head_dim
        kernels = [
            Attention(
                16384 // row.seq,
                heads,
                heads,
                row.seq,
                row.seq,
                head_dim,
                head_dim,
                True,
                "bf16",
                "flash1",
                b,
            )
            for b in (False, True)
        ]
        took = sum(kernel_seconds(kernel, gpu(name), calibration(name)) for kernel in kernels)
        ours.append(sum(kernel.flops for kernel in kernels) / took / 1e12)
        published.append(row.tflops)
    errors = [mine / theirs - 1 for mine, theirs in zip(ours, published, strict=True)]
    assert abs(sum(errors) / len(errors)) < 0.03
    assert max(map(abs, errors)) < 0.2


def test_large_products_of_a_tpu_are_not_limited_by_its_memory() -> None:
    """JAX documentation, a v5e: 92 % of peak for a square of 8192, dispatch included: blocks fill on-chip memory."""
    chip, product = gpu("tpu-v5p"), Gemm(8192, 8192, 8192, "bf16")
    share = product.flops / kernel_seconds(product, chip, calibration_for(chip)) / chip.dense_peak["bf16"]
    assert 0.9 < share < 0.96
