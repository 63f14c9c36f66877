"""How long does a matrix multiplication take? Tiles in waves over the SMs, a memory roof, and a falling clock.

The library's kernels cut the output into tiles and, when there are few of them, k into `split` parts. Every
candidate (tile shape, split) is priced and the cheapest taken, as the library's heuristic tries to do:

    tiles    = ceil(m/tm) * ceil(n/tn) * split * batch
    waves    = tiles/sms, rounded up but for the fraction `wave_overlap` of a wave that neighbours fill
    per wave = 2*tm*tn*(k/split) / rate + tile_overhead + epilogue bytes
    rate     = efficiency * peak/sms * (1 + operand_cost*(1/256 + 1/128)) / (1 + operand_cost*(1/tm + 1/tn)),
               since larger tiles read less per FLOP; a tile of 256 x 128 has the plain efficiency
    unaligned: rows that are not whole words of 16 bytes are loaded in smaller pieces, at `UNALIGNED` of the rate
    memory   : every operand once, plus what waves read beyond that (`reread` times), over achieved bandwidth
    clock    : kernels much longer than `throttle_time` run up to `throttle` slower, in proportion to how busy the
               matrix units are: by then the power controller has lowered the clock
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.costs.kernels.calibration import GemmParameters
from simulator.costs.kernels.chip import Chip, element_bytes

Array = NDArray[np.float64]

SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
K_STEP = 64  # elements of k a kernel consumes per main-loop step
REFERENCE = 1 / 256 + 1 / 128  # operand elements read per product, of the tile that efficiencies refer to
SHORTEST_SPLIT = 128  # no library splits k into parts shorter than this
UNALIGNED = 0.7
"""Measured: 0.69 on an H100 (a SwiGLU of width 10,922 against 10,944, stas00/ml-engineering), 0.71 on an RTX 4090 (bf16
squares of 2055 against 2040, pytorch/pytorch#181718)."""
OUTPUT_BYTES = {"fp32": 4.0, "tf32": 4.0}  # everything narrower is accumulated wide and written in 16 bits


def gemm_seconds(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    chip: Chip,
    parameters: GemmParameters,
    dtype: str,
    batch: ArrayLike = 1.0,
    accumulate: bool = False,
    aligned: bool = True,
) -> Array:
    """Seconds of C[m,n] = A[m,k] B[k,n], `batch` times, for arrays of shapes (all broadcast to one shape).

    `accumulate` reads and writes C in fp32; rows that are not `aligned` take narrower loads. Never below FLOPs/peak
    nor compulsory bytes/bandwidth.
    """
    m, n, k, batch = (np.asarray(x, float)[..., None] for x in np.broadcast_arrays(m, n, k, batch))
    tm, tn, split = _candidates(parameters.tiles)
    peak, bandwidth, sms, p = chip.peak(dtype), chip.bandwidth, chip.sms, parameters
    width, out = element_bytes(dtype), _output_bytes(dtype, accumulate)
    # What accumulation adds moves while the next tile multiplies, as far as tiles of a wave overlap at all.
    plain = _output_bytes(dtype, accumulate=False)
    stored = plain + (1 - p.wave_overlap) * (out - plain)

    depth = np.ceil(k / (split * K_STEP)) * K_STEP
    tiles = np.ceil(m / tm) * np.ceil(n / tn) * split * batch
    rate = (
        p.efficiency
        * (1.0 if aligned else UNALIGNED)
        * peak
        / sms
        * (1 + p.operand_cost * REFERENCE)
        / (1 + p.operand_cost * (1 / tm + 1 / tn))
    )
    per_wave = (
        2 * tm * tn * depth / rate + p.tile_overhead + p.epilogue * tm * tn * stored / (bandwidth / sms)
    )
    waves = (1 - p.wave_overlap) * np.ceil(tiles / sms) + p.wave_overlap * np.maximum(tiles / sms, 1)

    # A wave of w tiles covers a near-square super-tile; its rows and columns are read once per wave.
    side = np.sqrt(np.minimum(tiles / split, np.maximum(sms / split, 1)) * tm * tn)
    again = width * batch * m * n * k * (1 / np.minimum(m, side) + 1 / np.minimum(n, side))
    operands = width * batch * (m * k + n * k)
    compulsory = operands + out * batch * m * n
    moving = (compulsory + p.reread * np.maximum(again - operands, 0.0)) / (p.memory_efficiency * bandwidth)

    reduction = p.split_overhead + p.split_traffic * 4 * batch * m * n * split / bandwidth
    seconds = np.maximum(waves * per_wave, moving) + np.where(split > 1, reduction, 0.0)
    busy = 2 * batch * m * n * k / (p.efficiency * peak) / seconds
    seconds = throttled(seconds, busy, p.throttle, p.throttle_time) + p.latency
    seconds = np.where((split > 1) & (depth < SHORTEST_SPLIT), np.inf, seconds).min(axis=-1)
    floor = np.maximum(2 * batch * m * n * k / peak, compulsory / bandwidth)[..., 0]
    result: Array = np.maximum(seconds, floor)
    return result


def throttled(seconds: Array, busy: Array, throttle: float, throttle_time: float) -> Array:
    """What a kernel takes when power lowers the clock after about `throttle_time`: at most `throttle` longer.

    `busy` is the matrix units' share of the time. The measured onset is sharp (a square fits it) and near one
    millisecond on every GPU measured.
    """
    if throttle == 0:
        return seconds
    lasting = sustained(seconds, throttle_time)
    result: Array = seconds * (1 + throttle * np.minimum(busy, 1.0) * lasting)
    return result


def sustained(seconds: Any, throttle_time: float) -> Any:
    """How far the clock has come down in a kernel of `seconds`: from 0 to 1."""
    excess = np.square(seconds / throttle_time)
    return excess / (1 + excess)


def _output_bytes(dtype: str, accumulate: bool) -> float:
    """Bytes moved per element of C: written once, or read and written in fp32."""
    return 8.0 if accumulate else OUTPUT_BYTES.get(dtype, 2.0)


def _candidates(tiles: tuple[tuple[int, int], ...]) -> tuple[Array, Array, Array]:
    table = np.array([(tm, tn, split) for tm, tn in tiles for split in SPLITS], float)
    return table[:, 0], table[:, 1], table[:, 2]
