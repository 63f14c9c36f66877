"""How long does fused ("flash") attention take? Thread blocks of query rows, each passing over its keys.

    work of a block = scores it computes * (2*(d + dv)/efficiency + softmax_flops) / (peak/sms) + block_overhead
    time = blocks' work spread over the SMs + the part of the longest block that nothing hides + latency

Causal masking halves the scores but for the diagonal tiles, which are computed whole. Backward: five
matrix products for the forward's two, with its own parameters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.costs.kernels.calibration import AttentionParameters
from simulator.costs.kernels.chip import Chip, element_bytes

Array = NDArray[np.float64]

KEY_TILE = 128  # keys per step of a block; with causal masking half a tile per block is computed for nothing
BACKWARD_PRODUCTS = 2.5  # five matrix products for the forward's two


def attention_seconds(
    *,
    batch: Array | float,
    heads: Array | float,
    kv_heads: Array | float,
    seq_q: Array | float,
    seq_kv: Array | float,
    head_dim: Array | float,
    head_dim_v: Array | float,
    causal: bool,
    backward: bool,
    dtype: str,
    chip: Chip,
    parameters: AttentionParameters,
) -> Array:
    """Seconds of one fused attention kernel; sizes broadcast. Never below FLOPs/peak nor bytes/bandwidth."""
    b, h, hkv, sq, skv, d, dv = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (batch, heads, kv_heads, seq_q, seq_kv, head_dim, head_dim_v))
    )
    sm_rate = chip.peak(dtype) / chip.sms
    products = BACKWARD_PRODUCTS if backward else 1.0
    score = (2 * (d + dv) * products / parameters.efficiency + parameters.softmax_flops) / sm_rate

    rows = np.minimum(parameters.block, sq)
    blocks = b * h * np.ceil(sq / parameters.block)
    keys = (skv + np.minimum(KEY_TILE, skv)) / 2 if causal else skv
    block = rows * keys * score + parameters.block_overhead
    longest = rows * skv * score + parameters.block_overhead
    spread = np.maximum(blocks / chip.sms, 0) * block
    seconds = np.maximum(spread + parameters.imbalance * longest * (1 - 1 / np.maximum(blocks, 1)), longest)

    size = element_bytes(dtype) * b * (sq * h * (d + dv) + skv * hkv * (d + dv)) * (2 if backward else 1)
    seconds = seconds + parameters.extra_traffic * size / chip.bandwidth + parameters.latency
    flops = 2 * b * h * sq * skv * (d + dv) * products * (0.5 if causal else 1.0)
    result: Array = np.maximum(seconds, np.maximum(flops / chip.peak(dtype), size / chip.bandwidth))
    return result
