"""How is a GPU's kernel calibration made from the measurements that this package carries, or from one's own?

python -m simulator.calibration.fit_kernels a100-sxm-80 > hardware/calibrations/kernels/a100-sxm.yaml
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from simulator.calibration import fit_attention, fit_gemm, fit_memory
from simulator.calibration.relative_fit import relative_error
from simulator.costs.kernels.calibration import (
    AttentionCalibration,
    AttentionParameters,
    Fit,
    GemmParameters,
    KernelCalibration,
    MemoryParameters,
    QuantizeParameters,
)
from simulator.costs.kernels.chip import Chip, chip_of
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.hardware.gpu import GPU
from simulator.validation import kernel_data

if TYPE_CHECKING:
    from simulator.calibration.fit_attention import Table
    from simulator.validation.kernel_data import Mask


Speeds = dict[str, float | dict[int, float]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What was measured of a GPU, and whose parameters stand in for the rest (calibration names)."""

    description: str
    formats: dict[str, str]  # number format -> as the tables call it; bf16 is in a table of its own for most
    older: bool = False  # products are DeepBench's, every format fitted by itself
    training_heads: tuple[int, ...] = ()  # head sizes of training attention measured
    linked_heads: bool = False  # with a few scattered rows each, so that neighbours hold one another
    lender: str | None = None
    implementations: Speeds


AMPERE: Speeds = {
    "flash1": {64: 0.605, 128: 0.478},
    "triton": {64: 0.605, 128: 0.735},
    "triton_backward": {64: 0.605, 128: 0.479},
    "flash2": 1.0,
    "flash3": 1.0,
    "cudnn": 1.0,
}
HOPPER: Speeds = {
    "flash1": {64: 0.33, 128: 0.27},
    "triton": {64: 0.33, 128: 0.294},
    "flash2": 0.55,
    "flash3": 0.95,
    "cudnn": 1.0,
}
BLACKWELL: Speeds = {"flash1": 0.14, "triton": 0.14, "flash2": 0.27, "flash3": 0.27, "cudnn": 1.0}
BLOCK = {"fp8": "fp8", "mxfp8": "fp8_block", "nvfp4": "nvfp4"}

RECIPES = {
    "a100-sxm-80": Recipe(
        description="A100 SXM 80 GB",
        formats={"bf16": "bf16"},
        training_heads=(32, 64, 96, 128, 160, 192, 224, 256),
        linked_heads=True,
        implementations=AMPERE,
    ),
    "h200": Recipe(
        description="H200 SXM",
        formats={"fp8": "fp8", "mxfp8": "fp8_block"},
        training_heads=(128, 192),
        lender="a100-sxm",
        implementations=HOPPER,
    ),
    "h100-sxm": Recipe(
        description="H100 SXM 80 GB",
        formats={"fp8": "fp8", "mxfp8": "fp8_block"},
        lender="h200",
        implementations=HOPPER,
    ),
    "gb200": Recipe(
        description="GB200 (one GPU)",
        formats=BLOCK,
        training_heads=(128, 192, 256),
        lender="h100-sxm",
        implementations=BLACKWELL,
    ),
    "b200": Recipe(description="B200 SXM", formats=BLOCK, lender="gb200", implementations=BLACKWELL),
    "b300": Recipe(description="B300 SXM", formats=BLOCK, lender="b200", implementations=BLACKWELL),
    "gb300": Recipe(description="GB300 (one GPU)", formats=BLOCK, lender="gb200", implementations=BLACKWELL),
    "l40s": Recipe(
        description="L40S",
        formats={"fp8": "fp8"},
        lender="a100-sxm",
        implementations=AMPERE,
    ),
    "v100-sxm2-16": Recipe(
        description="V100 SXM2 16 GB",
        formats={"bf16": "fp16", "fp32": "fp32"},
        older=True,
        lender="a100-sxm",
        implementations=AMPERE,
    ),
    "p100-pcie": Recipe(
        description="P100 PCIe 16 GB",
        formats={"fp32": "fp32"},
        older=True,
        lender="a100-sxm",
        implementations=AMPERE,
    ),
    "titan-xp": Recipe(
        description="TITAN Xp",
        formats={"fp32": "fp32"},
        older=True,
        lender="a100-sxm",
        implementations=AMPERE,
    ),
}
"""In the order in which they can be made: a lender comes before those it lends to."""

LINEAR = "linear layers in inference frameworks (ai-dynamo/aiconfigurator, 2026-08)"
OLDER = "dense products with sides of 64 and more in cuBLAS (baidu-research/DeepBench, results/train, 2017 to 2019)"
SERVING = (
    "causal context attention in TensorRT-LLM, cache writes included (ai-dynamo/aiconfigurator, 2026-08)"
)
TRAINING = {
    "a100-sxm-80": "FlashAttention-2: without mask, fp16 (DebarghaG/estimate-train-time, Perlmutter, 2026-01) and the "
    "charts of both directions together (Dao 2023)",
    "h200": "cuDNN attention (NVIDIA/cudnn-frontend benchmarks, 2026-02)",
    "gb200": "cuDNN attention (NVIDIA/cudnn-frontend benchmarks, 2026-04)",
}
MEMORY = {
    "a100-sxm-80": "GPT-NeoX kernels (DebarghaG/estimate-train-time); rotary, embedding, loss: linkedin/Liger-Kernel",
    "h100-sxm": "linkedin/Liger-Kernel benchmark data, 2026",
    "h200": "norms: NVIDIA/cudnn-frontend benchmarks, 2026-02",
    "gb200": "norms: NVIDIA/cudnn-frontend, 2026-02; streams: microsoft/superbenchmark",
}


def calibrate(gpu: GPU, lender: KernelCalibration | None = None) -> KernelCalibration:
    """The calibration of a GPU of `RECIPES` from the measurements on board; what is missing comes from `lender`.

    Raises KeyError for other GPUs. Takes minutes: every part is fitted once on all rows that are not held, and
    GEMMs and attention once more for each range of sizes left out.
    """
    recipe, chip = RECIPES[gpu.name], chip_of(gpu)
    made = _Parts({}, {}, {}, {}, {})
    if recipe.older:
        _add_older_gemms(made, gpu, chip, recipe)
    else:
        _add_gemms(made, gpu, chip, recipe, lender)
    attention = _attention(made, gpu, chip, recipe, lender)
    memory = _memory(made, gpu, chip, lender)
    return KernelCalibration(
        description=recipe.description,
        gpu=gpu.name,
        gemm=made.gemm,
        library=made.library,
        attention=attention,
        memory=memory,
        quantize=made.quantize,
        fits=made.fits,
        sources=made.sources,
    )


@dataclass
class _Parts:
    """What has been made so far of a calibration."""

    gemm: dict[str, GemmParameters]
    library: dict[str, float]
    quantize: dict[str, QuantizeParameters]
    fits: dict[str, Fit]
    sources: dict[str, str]

    def borrow(self, part: str, lender: KernelCalibration | None) -> None:
        if lender is None:
            raise ValueError(f"{part}: neither measured nor lent")
        origin = lender.sources.get(part, "")
        text = origin if origin.startswith("transferred") else f"transferred from {lender.gpu}: {origin}"
        self.sources[part] = text


def _add_gemms(made: _Parts, gpu: GPU, chip: Chip, recipe: Recipe, lender: KernelCalibration | None) -> None:
    if gpu.name in kernel_data.GPUS:
        rows = kernel_data.gemms(gpu.name)
        held = kernel_data.held_gemms(rows)
        tiles = fit_gemm.TILES[gpu.architecture]
        batched = kernel_data.batched_gemms(gpu.name)
        also = batched[~kernel_data.held_batched(batched)] if len(batched) else None
        base = fit_gemm.fit_gemm(rows[~held], chip, "bf16", tiles, also)
        ranges = kernel_data.range_splits(rows[~held])
        fit = fit_gemm.judged(rows[~held], chip, "bf16", base, ranges, also=also)
        unseen = relative_error(
            fit_gemm.predicted(rows[held], chip, "bf16", base), rows[held].seconds.to_numpy()
        )
        holdout = {"weight matrices": unseen, **fit.holdout}
        made.gemm["bf16"] = base
        made.fits["gemm.bf16"] = fit.model_copy(update={"holdout": holdout, "note": LINEAR})
        made.sources["gemm.bf16"] = f"measured: {LINEAR}"
    elif lender is not None:
        made.gemm["bf16"] = _refitted(made, gpu, chip, "bf16", "bf16", lender.gemm["bf16"])
    for dtype, name in recipe.formats.items():
        if dtype != "bf16":
            _add_narrow(made, gpu, chip, dtype, name)
    if gpu.architecture == "blackwell":
        made.library |= _library(made, chip)
        made.sources["library"] = LIBRARY


def _add_older_gemms(made: _Parts, gpu: GPU, chip: Chip, recipe: Recipe) -> None:
    """Products of a GPU that DeepBench measured; those in fp32 run without matrix units, in smaller tiles."""
    for dtype, name in recipe.formats.items():
        rows = kernel_data.older_gemms(gpu.name, name)
        held = kernel_data.held_gemms(rows)
        tiles = fit_gemm.CUDA_CORE_TILES if dtype == "fp32" else fit_gemm.TILES[gpu.architecture]
        found = fit_gemm.fit_gemm(rows[~held], chip, dtype, tiles)
        made.gemm[dtype] = found
        made.fits[f"gemm.{dtype}"] = Fit(
            rows=int((~held).sum()),
            error=_gemm_error(rows[~held], chip, dtype, found),
            holdout={"weight matrices": _gemm_error(rows[held], chip, dtype, found)},
            note=OLDER,
        )
        made.sources[f"gemm.{dtype}"] = f"measured in {name}: {OLDER}"


def _library(made: _Parts, chip: Chip) -> dict[str, float]:
    """Time of products in cuBLAS over that of the inference kernels measured, for formats with scales per block.

    Both beside the products in fp8 of the same shapes, since the clock of the measured loops is not known.
    """
    measured = kernel_data.library_gemms()
    m, n, k = np.array(kernel_data.LIBRARY_SHAPES, float).T

    def seconds(dtype: str) -> float:
        calm = made.gemm[dtype].model_copy(update={"throttle": 0.0})
        return float(gemm_seconds(m, n, k, chip=chip, parameters=calm, dtype=dtype).sum())

    return {
        dtype: round(measured[dtype] / measured["fp8"] * seconds("fp8") / seconds(dtype), 3)
        for dtype in ("mxfp8", "nvfp4")
    }


LIBRARY = (
    "measured on a B300, beside products in fp8: cuBLAS in Transformer Engine (NVIDIA/TransformerEngine, "
    "docs/examples/gemm_profiling, 2026-06)"
)


def _add_narrow(made: _Parts, gpu: GPU, chip: Chip, dtype: str, name: str) -> None:
    """A format narrower than 16 bits: its GEMMs, and the quantisation measured together with them."""
    rows = kernel_data.narrow_gemms(gpu.name, name)
    held = kernel_data.held_gemms(rows)
    gemm, quantize = fit_gemm.fit_quantized(rows[~held], chip, dtype, made.gemm["bf16"])
    errors = [
        relative_error(
            fit_gemm.predicted_quantized(part, chip, dtype, gemm, quantize), part.seconds.to_numpy()
        )
        for part in (rows[~held], rows[held])
    ]
    made.gemm[dtype], made.quantize[dtype] = gemm, quantize
    made.fits[f"gemm.{dtype}"] = Fit(
        rows=int((~held).sum()),
        error=errors[0],
        holdout={"weight matrices": errors[1]},
        note=f"{name} {LINEAR}",
    )
    text = f"measured, products and quantisation together: {name} {LINEAR}"
    made.sources[f"gemm.{dtype}"] = f"{text}; tiles, latencies and splits as bf16"
    made.sources[f"quantize.{dtype}"] = text


def _refitted(
    made: _Parts, gpu: GPU, chip: Chip, dtype: str, name: str, base: GemmParameters
) -> GemmParameters:
    rows = kernel_data.narrow_gemms(gpu.name, name)
    held = kernel_data.held_gemms(rows)
    found = fit_gemm.refit_gemm(rows[~held], chip, dtype, base)
    made.fits[f"gemm.{dtype}"] = Fit(
        rows=int((~held).sum()),
        error=_gemm_error(rows[~held], chip, dtype, found),
        holdout={"weight matrices": _gemm_error(rows[held], chip, dtype, found)},
        note=f"{name} {LINEAR}",
    )
    some = ", ".join(fit_gemm.FEW)
    made.sources[f"gemm.{dtype}"] = f"measured ({some}; the rest as the format it extends): {name} {LINEAR}"
    return found


def _gemm_error(rows: pd.DataFrame, chip: Chip, dtype: str, parameters: GemmParameters) -> float:
    return relative_error(fit_gemm.predicted(rows, chip, dtype, parameters), rows.seconds.to_numpy())


def _attention(
    made: _Parts, gpu: GPU, chip: Chip, recipe: Recipe, lender: KernelCalibration | None
) -> AttentionCalibration:
    tables: dict[str, dict[int, AttentionParameters]] = {}
    if gpu.name in TRAINING:
        tables |= _training_attention(made, gpu, chip, recipe)
    if gpu.name in kernel_data.FUSED_HEAD_SIZES:
        rows = kernel_data.attention(gpu.name, "serving")
        held = kernel_data.held_attention(rows)
        tables["serving"] = fit_attention.fit_serving(rows[~held], chip)
        _judge_attention(made, "serving", rows, held, chip, tables["serving"], SERVING)
    for part in ("forward", "backward", "serving"):
        if part not in tables:
            made.borrow(f"attention.{part}", lender)
            tables[part] = getattr(lender.attention, part) if lender else {}
    made.sources["attention.implementations"] = IMPLEMENTATIONS
    return AttentionCalibration(**tables, implementations=recipe.implementations)


def _training_attention(
    made: _Parts, gpu: GPU, chip: Chip, recipe: Recipe
) -> dict[str, dict[int, AttentionParameters]]:
    """Both directions, which charts of their sum tie together."""
    parts = {way: kernel_data.attention(gpu.name, way) for way in fit_attention.DIRECTIONS}
    held = {way: kernel_data.held_attention(rows) for way, rows in parts.items()}
    charts = kernel_data.published_attention(gpu.name)
    charts = charts[~kernel_data.held_attention(charts)] if len(charts) else charts
    seen = pd.concat([*(rows[~held[way]] for way, rows in parts.items()), charts], ignore_index=True)
    padded = set(np.ceil(seen.head_dim / fit_attention.HEAD_STEP) * fit_attention.HEAD_STEP)
    heads = [h for h in recipe.training_heads if h in padded]
    tables = fit_attention.fit_training(seen, chip, heads, recipe.linked_heads)
    for way, rows in parts.items():
        _judge_attention(made, way, rows, held[way], chip, tables[way], TRAINING[gpu.name])
    return tables


def _judge_attention(
    made: _Parts, part: str, rows: pd.DataFrame, held: Mask, chip: Chip, found: Table, note: str
) -> None:
    seen, unseen = (
        relative_error(fit_attention.predicted(some, chip, found), some.seconds.to_numpy())
        for some in (rows[~held], rows[held])
    )
    what = "head counts" if part == "serving" else "shapes"
    made.fits[f"attention.{part}"] = Fit(
        rows=int((~held).sum()), error=seen, holdout={what: unseen}, note=note
    )
    made.sources[f"attention.{part}"] = f"measured: {note}"


IMPLEMENTATIONS = (
    "cited: FlashAttention 1 by head size, as published beside 2 (Dao 2023, figures 4 and 6: causal, 2k to 16k tokens) "
    "over this calibration's time for 2; on Hopper FlashAttention-3 and cuDNN are 1.5 to 2 times FlashAttention-2 "
    "(Shah et al. 2024); FlashAttention in Triton (of 2022, flash_attn_triton.py) with heads of 128 fitted on three "
    "rows of llm-foundry (T00106 and T00107 on A100, T00051 on H100; left out of the score), with heads of 64 assumed "
    "as fast as 1; assumed: on Blackwell FlashAttention-2 and 3 keep their Hopper speed, and 1 and Triton's are "
    "half of 2"
)


def _memory(made: _Parts, gpu: GPU, chip: Chip, lender: KernelCalibration | None) -> MemoryParameters:
    rows = kernel_data.memory_bound(gpu.name)
    if rows.empty:
        made.borrow("memory", lender)
        return lender.memory if lender else MemoryParameters(latency=0.0, efficiency={})
    held = kernel_data.held_memory_bound(rows)
    base = lender.memory if lender else MemoryParameters(latency=3e-6, efficiency=STREAMING)
    kept = kept_row(gpu.name, chip)
    base = base.model_copy(update={"kept_row": kept})
    found = fit_memory.fit_memory(rows[~held], chip, base)
    errors = [
        relative_error(fit_memory.predicted(part, chip, found), part.seconds.to_numpy())
        for part in (rows[~held], rows[held])
    ]
    in_turn = fit_memory.error_in_turn(rows, kernel_data.fifths_of_sizes(rows), chip, base)
    made.fits["memory"] = Fit(
        rows=int((~held).sum()),
        error=errors[0],
        holdout={"sizes": errors[1], "each fifth of the sizes in turn": in_turn},
        note=MEMORY[gpu.name],
    )
    rest = f"; other operators transferred from {lender.gpu}" if lender else ""
    if gpu.architecture == "blackwell":
        found = found.model_copy(update={"efficiency": {**found.efficiency, "cast_block": CAST_BLOCK}})
        rest += f"; cast_block {CAST_SOURCE}"
    if kept is not None:
        rest += f"; kept_row: {KEPT_SOURCE}"
    made.sources["memory"] = f"measured: {MEMORY[gpu.name]}{rest}"
    return found


def kept_row(gpu: str, chip: Chip) -> float | None:
    """Bytes of the longest row of a norm that the L2 of a GPU holds until its second reading; None if not in `L2`."""
    return float(f"{KEPT * L2[gpu] / (ROWS_PER_SM * chip.sms):.4g}") if gpu in L2 else None


L2 = {"h100-sxm": 50e6, "h200": 50e6, "gb200": 126e6}
"""Bytes of L2 cache (datasheets) of GPUs whose norms slow down where rows leave it. On an A100 (40 MB) they do not:
16-bit norms reach half of its bandwidth at any width, so something else holds them up."""
ROWS_PER_SM = 16
"""PyTorch's norms give a row to 128 threads; an SM holds 2,048."""
KEPT = 0.4
"""Of the L2 that rows being read have (what is written takes as much). Errors in turn are least at 0.3 to 0.5 on an
H100, an H200 and a GB200 alike, so any two of them give what the third has."""
KEPT_SOURCE = (
    "0.4 of the L2 (datasheet) over 16 rows on each SM; the share from norms of H100, H200 and GB200"
)


CAST_BLOCK = 0.69
CAST_SOURCE = (
    "cited: Transformer Engine makes 8192 x 8192 bf16 narrow both ways in 52.3 us on a B200 (ROCm/TransformerEngine, "
    "pull request 598)"
)
"""Of memory bandwidth, in casts with scales per block that write rows and columns."""


STREAMING = {"elementwise": 0.85, "permute": 0.60}
"""Of memory bandwidth, where nothing was measured on a GPU. elementwise: copies and sums on A100 and Blackwell reach
0.83 to 0.93. permute: Triton kernels that bring 8,192 tokens of 4,096 bf16 elements to 8 experts each, and back
(DeepLink-org/DLBlas, pull request 66): 1.5 and 2.1 TB/s to copy rows, 3.1 to sum them; the GPU is not stated, by its
rates a Hopper with 3.35 TB/s."""


def main(names: list[str]) -> None:
    """Print the calibration of the GPU named (lenders are read from the catalogue)."""
    from simulator.calibration.kernel_yaml import calibration_yaml
    from simulator.costs.kernels import load_calibration
    from simulator.description import load

    (name,) = names
    lender = RECIPES[name].lender
    found = calibrate(load("gpu", name), load_calibration(lender) if lender else None)
    sys.stdout.write(calibration_yaml(found))


if __name__ == "__main__":
    main(sys.argv[1:])
