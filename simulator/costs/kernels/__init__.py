"""How long does one kernel take on one GPU? `kernel_seconds` prices every operator, one model per kernel type.

Contents: gemm (tiles and waves), grouped_gemm (experts), attention (fused), memory_bound (norms, activations,
optimizer, the softmax of unfused attention), chip (what they need of a GPU), calibration (their parameters),
transfer (which parameters stand for a GPU).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from simulator.costs.kernels.attention import attention_seconds, for_head_size
from simulator.costs.kernels.calibration import AttentionCalibration, GemmParameters, KernelCalibration
from simulator.costs.kernels.chip import Chip, chip_of
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.costs.kernels.grouped_gemm import grouped_gemm_seconds
from simulator.costs.kernels.implicit_gemm import implicit_gemm_seconds
from simulator.costs.kernels.memory_bound import memory_bound_seconds, quantize_seconds
from simulator.costs.kernels.transfer import calibration_for, gemm_parameters, load_calibration
from simulator.workloads.operators import Attention, Gemm, GroupedGemm, Kernel, MemoryBound

__all__ = [
    "Chip",
    "GemmParameters",
    "KernelCalibration",
    "calibration_for",
    "chip_of",
    "kernel_seconds",
    "load_calibration",
    "register",
]

Model = Callable[[Any, Chip, KernelCalibration], float]
ModelT = TypeVar("ModelT", bound=Model)
MODELS: dict[type, Model] = {}
SERVING = (
    "serving"  # an attention implementation: an inference engine's, as in the measurements of forward passes
)


def register(kernel_type: type) -> Callable[[ModelT], ModelT]:
    """Make a function the cost model of a kernel type."""

    def add(model: ModelT) -> ModelT:
        MODELS[kernel_type] = model
        return model

    return add


def kernel_seconds(kernel: Kernel, gpu: Any, calibration: KernelCalibration) -> float:
    """Seconds the kernel runs on the GPU, host launch not included.

    TypeError for a kernel type without a model, ValueError for a number format that the GPU cannot compute in
    or an unknown implementation of attention.
    """
    return _seconds(kernel, chip_of(gpu), calibration)


@lru_cache(maxsize=1 << 16)  # a step asks for the same dozen shapes thousands of times
def _seconds(kernel: Kernel, chip: Chip, calibration: KernelCalibration) -> float:
    model = MODELS.get(type(kernel))
    if model is None:
        known = ", ".join(t.__name__ for t in MODELS)
        raise TypeError(f"no cost model for {type(kernel).__name__} (known: {known})")
    return model(kernel, chip, calibration)


@register(Gemm)
def _gemm(kernel: Gemm, chip: Chip, calibration: KernelCalibration) -> float:
    if kernel.reuse > 1.0:
        return implicit_gemm_seconds(kernel, chip, gemm_parameters(calibration, kernel.dtype))
    seconds = float(
        gemm_seconds(
            kernel.m,
            kernel.n,
            kernel.k,
            chip=chip,
            parameters=gemm_parameters(calibration, kernel.dtype),
            dtype=kernel.dtype,
            batch=kernel.batch,
            accumulate=kernel.accumulate,
            aligned=kernel.aligned,
        )
    )
    return _in_library(seconds, kernel, chip, calibration)


@register(GroupedGemm)
def _grouped_gemm(kernel: GroupedGemm, chip: Chip, calibration: KernelCalibration) -> float:
    seconds = grouped_gemm_seconds(kernel, chip, gemm_parameters(calibration, kernel.dtype))
    return _in_library(seconds, kernel, chip, calibration)


def _in_library(
    seconds: float, kernel: Gemm | GroupedGemm, chip: Chip, calibration: KernelCalibration
) -> float:
    """What the library that trains takes for a product that the measured kernels do in `seconds`."""
    pace = calibration.library.get(kernel.dtype, 1.0)
    return seconds if pace == 1.0 else max(seconds * pace, kernel.flops / chip.peak(kernel.dtype))


@register(Attention)
def _attention(kernel: Attention, chip: Chip, calibration: KernelCalibration) -> float:
    measured = calibration.attention
    table = measured.backward if kernel.backward else measured.forward
    if kernel.implementation == SERVING and measured.serving and not kernel.backward:
        table = measured.serving
    batch, queries, keys = zip(*kernel.sequences, strict=True)
    seconds = attention_seconds(
        batch=batch,
        heads=kernel.heads,
        kv_heads=kernel.kv_heads,
        seq_q=queries,
        seq_kv=keys,
        head_dim=kernel.head_dim,
        head_dim_v=kernel.head_dim_v,
        causal=kernel.causal,
        backward=kernel.backward,
        dtype=kernel.dtype,
        chip=chip,
        parameters=for_head_size(table, kernel.head_dim),
        together=True,
        windowed=kernel.windowed,
    )
    speed = _speed(kernel, measured)
    return max(float(seconds) / speed, kernel.flops / chip.peak(kernel.dtype))


def _speed(kernel: Attention, measured: AttentionCalibration) -> float:
    name = kernel.implementation
    speeds = {SERVING: 1.0, **measured.implementations}
    if name not in speeds:
        raise ValueError(f"unknown attention implementation {name!r} (known: {', '.join(speeds)})")
    speed = speeds.get(f"{name}_backward", speeds[name]) if kernel.backward else speeds[name]
    return for_head_size(speed, kernel.head_dim) if isinstance(speed, dict) else speed


@register(MemoryBound)
def _memory_bound(kernel: MemoryBound, chip: Chip, calibration: KernelCalibration) -> float:
    """`quantize_<format>` has measured parameters of its own; `bytes_read` are then 16-bit activations."""
    dtype = kernel.op.removeprefix("quantize_")
    if dtype in calibration.quantize and dtype != kernel.op:
        return float(quantize_seconds(kernel.bytes_read / 2, dtype, chip, calibration.quantize[dtype]))
    size = kernel.bytes_read + kernel.bytes_written
    seconds = memory_bound_seconds(kernel.op, size, chip, calibration.memory, kernel.kernels, kernel.row)
    return float(seconds)
