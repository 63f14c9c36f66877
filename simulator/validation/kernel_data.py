"""The measured kernels that this package carries: read as tables, cleaned, and split for honest judgement."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent / "data" / "kernels"
GPUS = ("a100-sxm-80", "h100-sxm", "h200", "b200", "gb200", "b300")
"""GPUs with thousands of bf16 GEMMs measured, as the catalogue names them."""

NEWEST = "TRTLLM 1.3.0rc20"
"""Software whose rows are used where several versions were measured (they differ by up to 30 %)."""

Mask = NDArray[np.bool_]

FUSED_HEAD_SIZES = {
    "a100-sxm-80": (128,),
    "h100-sxm": (64, 128, 192, 256),
    "h200": (64, 128, 192, 256),
    "b200": (64, 128, 256),
    "gb200": (64, 128, 256),
}
"""Head sizes for which the measured inference engine has a fused kernel; others fall back to something slower."""


@lru_cache(maxsize=16)
def table(name: str, suffix: str = "csv.gz") -> pd.DataFrame:
    """The table `name` of the data folder, as measured. Times are in microseconds (column `us`, or a GPU's)."""
    import pandas as pd

    return pd.read_csv(FOLDER / f"{name}.{suffix}")


def gemms(gpu: str) -> pd.DataFrame:
    """bf16 GEMMs of one GPU: m, n, k, seconds. Each shape once (median over inference frameworks)."""
    wide = table("gemm_bf16")
    return wide[["m", "n", "k"]].assign(seconds=wide[gpu] * 1e-6, batch=1)


def narrow_gemms(gpu: str, dtype: str, source: str = "aiconfigurator") -> pd.DataFrame:
    """GEMMs of one GPU in another format: m, n, k, seconds; the newest software measured, its median per shape.

    In fp8, fp8_block and nvfp4 these are linear layers: they quantise their m x k input first.
    """
    rows = table("gemm_other")
    rows = rows[(rows.gpu == gpu) & (rows["dtype"] == dtype) & (rows.source == source)]
    rows = rows[rows.software.str.contains(NEWEST) | ~rows.software.str.contains("TRTLLM|VLLM")]
    medians = rows.groupby(["m", "n", "k", "batch"])["us"].median().reset_index()
    return medians.assign(seconds=medians.us * 1e-6)


SKINNY = 64  # rows, columns or depth


def older_gemms(gpu: str, dtype: str) -> pd.DataFrame:
    """DeepBench's GEMMs of one GPU in fp32 or fp16: m, n, k, seconds; the median over transposed operands.

    Left out: products with a side below `SKINNY`, those of recurrent networks that answer a few users, which cuBLAS
    of the time ran in kernels of their own (on a P100, 16 columns take up to seven times as long as 32).
    """
    rows = narrow_gemms(gpu, dtype, "deepbench")
    return rows[(rows[["m", "n", "k"]] >= SKINNY).all(axis=1)].reset_index(drop=True)


def training_gemms(gpu: str) -> pd.DataFrame:
    """GEMMs of training frameworks: forward, input and weight gradients (`direction`), batched ones included."""
    rows = table("gemm_other")
    rows = rows[(rows.gpu == gpu) & (rows.source.isin(["estimate-train-time", "simumax"]))]
    return rows.assign(seconds=rows.us * 1e-6)


def library_gemms() -> dict[str, float]:
    """Seconds of one block's products (`LIBRARY_SHAPES`) in the library that trains, on a B300, by number format."""
    rows = table("gemm_library", "csv")
    return {str(dtype): float(part.ms.sum()) * 1e-3 for dtype, part in rows.groupby("dtype")}


_TOKENS = 15872
_WEIGHTS = ((4096, 12288), (4096, 4096), (4096, 16384), (16384, 4096))  # inputs, outputs
LIBRARY_SHAPES: tuple[tuple[int, int, int], ...] = tuple(
    shape
    for inputs, outputs in _WEIGHTS
    for shape in ((_TOKENS, outputs, inputs), (_TOKENS, inputs, outputs), (outputs, inputs, _TOKENS))
)
"""m, n, k of the products behind `gemm_library.csv`: forward, input and weight gradient of four linear layers."""


def batched_gemms(gpu: str) -> pd.DataFrame:
    """Batched products of unfused attention (scores, context), forward: m, n, k, batch, seconds."""
    rows = training_gemms(gpu)
    return rows[(rows["batch"] > 1) & (rows.direction == "forward")].reset_index(drop=True)


def held_batched(rows: pd.DataFrame) -> Mask:
    """Batched products not fitted to: a fifth of the sequence lengths and batches."""
    return _one_in(5, rows.m.to_numpy(), rows["batch"].to_numpy())


def serving_attention(gpu: str) -> pd.DataFrame:
    """Causal forward attention of an inference engine: batch, seq, heads, kv_heads, head_dim, seconds.

    Left out: head sizes without a fused kernel, times below what the peak allows, and times far off those of
    the same work with other key-value heads, or on the twin GPU (see `suspect`).
    """
    wide = table("attention_serving")
    rows = wide[["batch", "seq", "heads", "kv_heads", "head_dim"]].assign(seconds=wide[gpu] * 1e-6)
    keep = rows.seconds.notna() & rows.head_dim.isin(FUSED_HEAD_SIZES[gpu]) & ~suspect(gpu)
    return rows[keep].reset_index(drop=True)


def suspect(gpu: str) -> Mask:
    """Rows of the serving table that contradict the same work measured next to them by a factor of 1.67."""
    wide = table("attention_serving")
    work = [wide.batch * wide.heads, wide.seq, wide.head_dim]
    own = wide[gpu] / wide[gpu].groupby(work).transform("median")
    twin = {"b200": "gb200", "gb200": "b200", "h100-sxm": "h200", "h200": "h100-sxm"}.get(gpu)
    beside = wide[gpu] / wide[twin] if twin else own
    flops = 2.0 * wide.batch * wide.heads * wide.seq.astype(float) ** 2 * wide.head_dim
    above_peak = flops / (wide[gpu] * 1e-6) > PEAKS_AT_MOST[gpu]
    off = (own < 0.6) | (own > 1.67) | (beside < 0.6) | above_peak
    return np.asarray(off, bool)


PEAKS_AT_MOST = {"a100-sxm-80": 312e12, "h100-sxm": 990e12, "h200": 990e12, "b200": 2250e12, "gb200": 2500e12}


def training_attention(gpu: str) -> pd.DataFrame:
    """Forward and backward attention of training libraries."""
    rows = table("attention_training")
    rows = rows[(rows.gpu == gpu) & ~rows.source.str.contains("deterministic")]
    return rows.assign(seconds=rows.us * 1e-6).reset_index(drop=True)


def published_attention(gpu: str) -> pd.DataFrame:
    """FlashAttention-2 forward and backward together, as its authors' charts have them: shapes, causal, seconds."""
    rows = table("attention_published", "csv")
    rows = rows[(rows.gpu == gpu) & (rows.implementation == "flash2")]
    heads, batch, causal = 2048 // rows.head_dim, 16384 // rows.seq, rows.causal == 1
    flops = 3.5 * 4.0 * batch * heads * rows.seq.astype(float) ** 2 * rows.head_dim * (1 - causal / 2)
    made = rows.assign(
        dtype="bf16",
        direction="both",
        causal=causal,
        batch=batch,
        heads=heads,
        kv_heads=heads,
        head_dim_v=rows.head_dim,
        seconds=flops / (rows.tflops * 1e12),
    )
    return made.rename(columns={"seq": "seq_q"}).assign(seq_kv=rows.seq).reset_index(drop=True)


def attention(gpu: str, part: str) -> pd.DataFrame:
    """Attention of one `part` of a calibration: serving, or forward or backward training in 16-bit formats."""
    if part == "serving":
        return serving_attention(gpu)
    rows = training_attention(gpu)
    wanted = (rows.direction == part) & rows["dtype"].isin(["bf16", "fp16"])
    return rows[wanted].reset_index(drop=True)


def memory_bound(gpu: str) -> pd.DataFrame:
    """Operators limited by memory: op, bytes, row (of norms that read it twice, else 0), kernels, seconds."""
    rows = table("memory_bound")
    rows = rows[rows.gpu == gpu]
    return rows.assign(seconds=rows.us * 1e-6).reset_index(drop=True)


def gemm_splits(rows: pd.DataFrame) -> dict[str, Mask]:
    """What is kept from a fit, by name: a fifth of the weight matrices (n, k) with every m; a range of k; one of m.

    No shape tested is in the fit, nor is its weight matrix, its k, or its m respectively. The ranges are the
    largest sizes, so they test extrapolation.
    """
    n, k, m = (rows[name].to_numpy() for name in ("n", "k", "m"))
    return {
        "weight matrices": _one_in(5, n, k),
        "k of 12288 and more": k >= 12288,
        "m of 8192 and more": m >= 8192,
    }


def range_splits(rows: pd.DataFrame) -> dict[str, Mask]:
    """The splits of `gemm_splits` that leave out the largest sizes."""
    return {name: mask for name, mask in gemm_splits(rows).items() if name != "weight matrices"}


def attention_splits(rows: pd.DataFrame) -> dict[str, Mask]:
    """A fifth of the (heads, key-value heads) pairs with every batch and length; the longest sequences."""
    heads, kv, seq = (rows[name].to_numpy() for name in ("heads", "kv_heads", "seq"))
    return {"head counts": _one_in(5, heads, kv), "sequences of 8192 and more": seq >= 8192}


def _one_in(parts: int, *columns: NDArray[np.int64]) -> Mask:
    """A fixed pseudo-random fifth (or so) of the distinct combinations."""
    return np.asarray(_part_of(parts, *columns) == 0, bool)


def _part_of(parts: int, *columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which of so many parts every row's combination belongs to (multiplicative hashing)."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(40)) % np.uint64(parts), np.int64)


def held_gemms(rows: pd.DataFrame) -> Mask:
    """GEMMs that shipped calibrations were not fitted to: every m of a fifth of the weight matrices."""
    return gemm_splits(rows)["weight matrices"]


def held_attention(rows: pd.DataFrame) -> Mask:
    """Attention kernels not fitted to: a fifth of the head counts (inference), or of the shapes (training)."""
    if "seq" in rows:
        return attention_splits(rows)["head counts"]
    return _one_in(5, *(rows[name].to_numpy() for name in ("batch", "heads", "seq_q", "head_dim")))


def held_memory_bound(rows: pd.DataFrame) -> Mask:
    """Memory-bound operators not fitted to: a fifth of the sizes."""
    return np.asarray(fifths_of_sizes(rows) == 0, bool)


def fifths_of_sizes(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Which fifth of the sizes (0 to 4) every memory-bound operator belongs to; those of the first are held."""
    return _part_of(5, rows.bytes.to_numpy())
