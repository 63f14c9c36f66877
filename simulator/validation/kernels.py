"""How far are predicted kernels from measured ones, on rows that the shipped calibrations were not fitted to?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from simulator.calibration import fit_attention, fit_gemm, fit_memory
from simulator.calibration.fit_kernels import RECIPES
from simulator.calibration.relative_fit import Array
from simulator.costs.kernels import Chip, KernelCalibration, calibration_for, chip_of, kernel_seconds
from simulator.validation import kernel_data
from simulator.workloads.operators import GroupedGemm

if TYPE_CHECKING:
    import pandas as pd

Judged = tuple[str, str, float, float]
"""Source (GPU and kind of kernel), name of the row, measured and predicted seconds."""

GPUS = (*kernel_data.GPUS, "gb300", "l40s")
OLDER = {gpu: recipe.formats for gpu, recipe in RECIPES.items() if recipe.older}
"""GPUs whose products DeepBench measured: number format -> as the tables call it."""
NARROW = {"fp8": "fp8", "mxfp8": "fp8_block", "nvfp4": "nvfp4"}
"""Number format -> as the tables call it."""

LEAST_ROWS = 4  # fewer held-out rows than this make no score


def held_out() -> Iterator[Judged]:
    """Every held-out row of every GPU and kind of kernel, and training kernels that no fit has seen at all."""
    for gpu in GPUS:
        chip, calibration = _gpu(gpu)
        yield from _rows(f"{gpu} gemm bf16", *_gemms(gpu, chip, calibration))
        yield from _rows(f"{gpu} gemm batched", *_batched(gpu, chip, calibration))
        for dtype in NARROW:
            if dtype in calibration.quantize:
                yield from _rows(f"{gpu} linear {dtype}", *_linears(gpu, dtype, chip, calibration))
        for part in ("serving", "forward", "backward"):
            if f"attention.{part}" in calibration.fits:
                yield from _rows(f"{gpu} attention {part}", *_attention(gpu, part, chip, calibration))
        if "attention.forward" in calibration.fits:
            yield from _rows(f"{gpu} attention both", *_published(gpu, chip, calibration))
        if "memory" in calibration.fits:
            yield from _rows(f"{gpu} memory-bound", *_memory_bound(gpu, chip, calibration))
    for gpu, formats in OLDER.items():
        chip, calibration = _gpu(gpu)
        for dtype, name in formats.items():
            rows = kernel_data.older_gemms(gpu, name)
            rows = rows[kernel_data.held_gemms(rows)]
            predicted = fit_gemm.predicted(rows, chip, dtype, calibration.gemm[dtype])
            yield from _rows(f"{gpu} gemm {name}", rows, predicted)
    yield from unfitted()
    yield from _grouped()


def unfitted() -> Iterator[Judged]:
    """Training kernels that nothing was fitted to: linear layers of PyTorch, on GPUs that were and were not."""
    for gpu in ("a100-sxm-80", "a100-pcie-80"):
        chip, calibration = _gpu(gpu)
        rows = kernel_data.training_gemms(gpu)
        for direction, part in rows.groupby("direction"):
            for batched, some in part.groupby(part["batch"] > 1):
                if batched and direction == "forward":
                    continue  # these took part in the fit
                kind = "batched" if batched else "linear"
                predicted = training_gemm_seconds(some, chip, calibration)
                yield from _rows(f"{gpu} training {kind} {direction}", some, predicted)


def _grouped() -> Iterator[Judged]:
    """Experts' products, forward and input gradient; nothing was fitted to them either."""
    rows = kernel_data.table("grouped_gemm")
    rows = rows[(rows.source != "aiconfigurator") & ~rows.op.str.contains("bwd_grad_w")]
    for (gpu, dtype), part in rows.groupby(["gpu", "dtype"]):
        chip, calibration = _gpu(str(gpu))
        name = "mxfp8" if dtype == "fp8_block" else str(dtype)
        shapes = part[["groups", "m", "n", "k"]].to_numpy(int).tolist()
        kernels = [GroupedGemm(groups, m, n, k, name) for groups, m, n, k in shapes]
        predicted = np.array([kernel_seconds(kernel, chip, calibration) for kernel in kernels])
        yield from _rows(f"{gpu} grouped {name}", part.assign(seconds=part.us * 1e-6), predicted)


def training_gemm_seconds(rows: pd.DataFrame, chip: Chip, calibration: KernelCalibration) -> Array:
    """Predicted seconds; `backward` is the input gradient (m, k, n) and then the weight gradient (n, k, m)."""
    parameters = calibration.gemm["bf16"]
    direction = rows.direction.iloc[0]

    def seconds(m: str, n: str, k: str, accumulate: bool = False) -> Array:
        return fit_gemm.gemm_seconds(
            *(rows[name].to_numpy() for name in (m, n, k)),
            chip=chip,
            parameters=parameters,
            dtype="bf16",
            batch=rows["batch"].to_numpy(),
            accumulate=accumulate,
        )

    if direction == "backward":
        return seconds("m", "k", "n") + seconds("n", "k", "m")
    return seconds("m", "n", "k", accumulate=direction == "wgrad_accumulate")


def _gpu(name: str) -> tuple[Chip, KernelCalibration]:
    from simulator.description import load

    gpu = load("gpu", name)
    return chip_of(gpu), calibration_for(gpu)


def _gemms(gpu: str, chip: Chip, calibration: KernelCalibration) -> tuple[pd.DataFrame, Array]:
    rows = kernel_data.gemms(gpu) if gpu in kernel_data.GPUS else kernel_data.narrow_gemms(gpu, "bf16")
    rows = rows[kernel_data.held_gemms(rows)]
    return rows, fit_gemm.predicted(rows, chip, "bf16", calibration.gemm["bf16"])


def _batched(gpu: str, chip: Chip, calibration: KernelCalibration) -> tuple[pd.DataFrame, Array]:
    rows = kernel_data.batched_gemms(gpu)
    rows = rows[kernel_data.held_batched(rows)]
    return rows, fit_gemm.predicted(rows, chip, "bf16", calibration.gemm["bf16"])


def _linears(gpu: str, dtype: str, chip: Chip, calibration: KernelCalibration) -> tuple[pd.DataFrame, Array]:
    rows = kernel_data.narrow_gemms(gpu, NARROW[dtype])
    rows = rows[kernel_data.held_gemms(rows)]
    parameters = calibration.gemm[dtype], calibration.quantize[dtype]
    return rows, fit_gemm.predicted_quantized(rows, chip, dtype, *parameters)


def _attention(gpu: str, part: str, chip: Chip, calibration: KernelCalibration) -> tuple[pd.DataFrame, Array]:
    rows = kernel_data.attention(gpu, part)
    rows = rows[kernel_data.held_attention(rows)].reset_index(drop=True)
    return rows, fit_attention.predicted(rows, chip, getattr(calibration.attention, part))


def _published(gpu: str, chip: Chip, calibration: KernelCalibration) -> tuple[pd.DataFrame, Array]:
    rows = kernel_data.published_attention(gpu)
    rows = rows[kernel_data.held_attention(rows)].reset_index(drop=True) if len(rows) else rows
    measured = calibration.attention
    tables = {"forward": measured.forward, "backward": measured.backward}
    return rows, fit_attention.predicted_training(rows, chip, tables)


def _memory_bound(gpu: str, chip: Chip, calibration: KernelCalibration) -> tuple[pd.DataFrame, Array]:
    rows = kernel_data.memory_bound(gpu)
    rows = rows[kernel_data.held_memory_bound(rows)].reset_index(drop=True)
    return rows, fit_memory.predicted(rows, chip, calibration.memory)


NAMING = ("op", "bytes", "m", "n", "k", "heads", "kv_heads", "seq", "seq_q", "head_dim")


def _rows(source: str, rows: pd.DataFrame, predicted: Array) -> Iterator[Judged]:
    if len(rows) < LEAST_ROWS:
        return
    columns = [name for name in NAMING if name in rows]
    if "batch" in rows:
        columns.append("batch")
    names = rows[columns].astype(str).agg(" ".join, axis=1)
    label = " ".join(columns)
    for name, measured, ours in zip(names, rows.seconds, predicted, strict=True):
        yield source, f"{label}: {name}", float(measured), float(ours)
