"""How long does fused ("flash") attention take? Thread blocks of query rows, each passing over its keys.

    block  = scores it computes * (2*(d + dv)*products*uneven/efficiency + softmax_flops) / (peak/sms) + block_overhead
    time   = blocks spread over the SMs + the exposed part of the longest + passes over the tensors + latency
    clock  : as of GEMMs (`gemm.throttled`)

Causal masking halves the scores but for the diagonal tiles, which are computed whole. A window of keys begins and ends
within a tile, so that a block meets one tile more, and has few tiles behind which to start and end. Backward has five
matrix products for the forward's two, and its own parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.costs.kernels.calibration import AttentionParameters
from simulator.costs.kernels.chip import Chip, element_bytes
from simulator.costs.kernels.gemm import throttled

Array = NDArray[np.float64]
Measured = TypeVar("Measured")

KEY_TILE = 128  # keys per step of a block; with causal masking half a tile per block is computed for nothing
HEAD_STEP = 32  # head sizes are padded to a multiple of this
BACKWARD_PRODUCTS = 2.5  # five matrix products for the forward's two
WINDOW_START = {False: 2.2e-6, True: 4.6e-6}
"""Seconds by which blocks of queries with a window of keys are longer, forward and backward: measured on a GB200
(cuDNN, windows of 128 at four lengths, NVIDIA/cudnn-frontend, 2026-04)."""


def attention_seconds(
    *,
    batch: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    seq_q: ArrayLike,
    seq_kv: ArrayLike,
    head_dim: ArrayLike,
    head_dim_v: ArrayLike,
    causal: bool,
    backward: bool,
    dtype: str,
    chip: Chip,
    parameters: AttentionParameters,
    together: bool = False,
    windowed: bool = False,
) -> Array:
    """Seconds of one fused attention kernel; sizes broadcast. Never below FLOPs/peak nor bytes/bandwidth.

    `together`: the last axis holds sequences of one kernel, whose blocks fill the SMs one after the other. `windowed`:
    `seq_kv` are the last keys before each query.
    """
    b, h, hkv, sq, skv, d, dv = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (batch, heads, kv_heads, seq_q, seq_kv, head_dim, head_dim_v))
    )
    p, sm_rate = parameters, chip.peak(dtype) / chip.sms
    products = BACKWARD_PRODUCTS if backward else 1.0
    width = HEAD_STEP * (np.ceil(d / HEAD_STEP) + np.ceil(dv / HEAD_STEP))
    checked = np.where((d % HEAD_STEP != 0) | (dv % HEAD_STEP != 0), p.uneven, 1.0)
    score = (2 * width * products / p.efficiency * checked + p.softmax_flops) / sm_rate

    rows = np.minimum(p.block, sq)
    total, most = (_sum_of_last, _max_of_last) if together else (_each, _each)
    blocks = b * h * np.ceil(sq / p.block)
    keys = (skv + np.minimum(KEY_TILE, skv)) / 2 if causal else skv + KEY_TILE * windowed
    start = p.block_overhead + (WINDOW_START[backward] if windowed else 0.0)
    block = rows * keys * score + start
    longest = most(rows * skv * score * p.alone + start)
    spread = total(blocks / chip.sms * block)
    seconds = np.maximum(spread + p.imbalance * longest * (1 - 1 / total(blocks)), longest)

    size = element_bytes(dtype) * b * (sq * h * (d + dv) + skv * hkv * (d + dv)) * (2 if backward else 1)
    size = total(size)
    seconds = seconds + p.extra_traffic * size / chip.bandwidth + p.latency
    flops = total(2 * b * h * sq * skv * (d + dv) * products * (0.5 if causal else 1.0))
    busy = flops / (p.efficiency * chip.peak(dtype)) / seconds
    seconds = throttled(seconds, busy, p.throttle, p.throttle_time)
    result: Array = np.maximum(seconds, np.maximum(flops / chip.peak(dtype), size / chip.bandwidth))
    return result


def _each(values: Array) -> Array:
    return values


def _sum_of_last(values: Array) -> Array:
    found: Array = values.sum(axis=-1)
    return found


def _max_of_last(values: Array) -> Array:
    found: Array = values.max(axis=-1)
    return found


def for_head_size(table: Mapping[int, Measured], head_dim: float) -> Measured:
    """What was measured at the head size nearest in ratio (of two equally near, the larger)."""
    return table[min(table, key=lambda known: (abs(log(known / head_dim)), -known))]
