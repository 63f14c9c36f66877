"""How long does one kernel take on one GPU? `kernel_seconds` prices every operator, one model per kernel type.

Table of contents: `gemm` (tiles and waves), `grouped_gemm` (experts), `attention` (fused), `memory_bound` (norms,
activations, optimizer, unfused softmax), `chip` (what they need of a GPU), `calibration` (their parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from simulator.costs.kernels.attention import attention_seconds
from simulator.costs.kernels.calibration import GemmParameters, KernelCalibration
from simulator.costs.kernels.chip import Chip, chip_of
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.costs.kernels.grouped_gemm import grouped_gemm_seconds
from simulator.costs.kernels.memory_bound import memory_bound_seconds
from simulator.costs.kernels.transfer import calibration_for, load_calibration
from simulator.workloads.operators import Attention, Gemm, GroupedGemm, Kernel, MemoryBound

__all__ = [
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


def register(kernel_type: type) -> Callable[[ModelT], ModelT]:
    """Make a function the cost model of a kernel type."""

    def add(model: ModelT) -> ModelT:
        MODELS[kernel_type] = model
        return model

    return add


def kernel_seconds(kernel: Kernel, gpu: Any, calibration: KernelCalibration) -> float:
    """Seconds the kernel runs on the GPU, host launch not included.

    TypeError for a kernel type without a model, ValueError for a number format that the GPU cannot compute in.
    """
    return _seconds(kernel, chip_of(gpu), calibration)


@lru_cache(maxsize=1 << 16)  # a step asks for the same dozen shapes thousands of times
def _seconds(kernel: Kernel, chip: Chip, calibration: KernelCalibration) -> float:
    if type(kernel) not in MODELS:
        raise TypeError(
            f"no cost model for {type(kernel).__name__} (known: {', '.join(t.__name__ for t in MODELS)})"
        )
    return MODELS[type(kernel)](kernel, chip, calibration)


@register(Gemm)
def _gemm(kernel: Gemm, chip: Chip, calibration: KernelCalibration) -> float:
    return float(
        gemm_seconds(
            kernel.m,
            kernel.n,
            kernel.k,
            chip=chip,
            parameters=_gemm_parameters(calibration, kernel.dtype),
            dtype=kernel.dtype,
            batch=kernel.batch,
            accumulate=kernel.accumulate,
        )
    )


@register(GroupedGemm)
def _grouped_gemm(kernel: GroupedGemm, chip: Chip, calibration: KernelCalibration) -> float:
    return grouped_gemm_seconds(kernel, chip, _gemm_parameters(calibration, kernel.dtype))


@register(Attention)
def _attention(kernel: Attention, chip: Chip, calibration: KernelCalibration) -> float:
    return float(
        attention_seconds(
            batch=kernel.batch,
            heads=kernel.heads,
            kv_heads=kernel.kv_heads,
            seq_q=kernel.seq_q,
            seq_kv=kernel.seq_kv,
            head_dim=kernel.head_dim,
            head_dim_v=kernel.head_dim_v,
            causal=kernel.causal,
            backward=kernel.backward,
            dtype=kernel.dtype,
            chip=chip,
            parameters=calibration.attention["backward" if kernel.backward else "forward"],
        )
    )


@register(MemoryBound)
def _memory_bound(kernel: MemoryBound, chip: Chip, calibration: KernelCalibration) -> float:
    return memory_bound_seconds(kernel, chip, calibration.memory)


def _gemm_parameters(calibration: KernelCalibration, dtype: str) -> GemmParameters:
    return calibration.gemm.get(dtype) or calibration.gemm["bf16"]
