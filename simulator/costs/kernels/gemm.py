"""How long does a matrix multiplication take? Tiles in waves over the SMs, under a power cap and a memory roof.

The library's kernels cut the output into tiles and, when there are few of them, k into `split` parts. Every
candidate (tile shape, split) is priced and the cheapest taken, as the library's heuristic tries to do:

    tiles    = ceil(m/tm) * ceil(n/tn) * split * batch
    waves    = tiles/sms, rounded up but for the fraction `wave_overlap` of a wave that neighbours fill
    per wave = 2*tm*tn*(k/split) / rate + tile_overhead + epilogue bytes
    rate     = efficiency * peak/sms / (1 + operand_cost * (1/tm + 1/tn))      larger tiles read less per FLOP
    power    : utilisation u above `power_limit` lowers the clock as (u/limit)^(1/3), since power ~ u * f^3
    memory   : compulsory bytes plus what a wave's super-tile reads again, over achieved bandwidth
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.costs.kernels.calibration import GemmParameters
from simulator.costs.kernels.chip import Chip, element_bytes

Array = NDArray[np.float64]

SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
K_STEP = 64  # elements of k a kernel consumes per main-loop step
SHORTEST_SPLIT = 128  # no library splits k into parts shorter than this
OUTPUT_BYTES = {"fp32": 4.0, "tf32": 4.0}  # everything narrower is accumulated wide and written in 16 bits


def gemm_seconds(
    m: Array,
    n: Array,
    k: Array,
    *,
    chip: Chip,
    parameters: GemmParameters,
    dtype: str,
    batch: Array | float = 1.0,
    accumulate: bool = False,
) -> Array:
    """Seconds of C[m,n] = A[m,k] B[k,n], `batch` times, for arrays of shapes (all broadcast to one shape).

    `accumulate` reads and writes C in fp32. Never below FLOPs/peak nor compulsory bytes/bandwidth.
    """
    m, n, k, batch = (np.asarray(x, float)[..., None] for x in np.broadcast_arrays(m, n, k, batch))
    tm, tn, split = _candidates(parameters.tiles)
    peak, bandwidth, sms = chip.peak(dtype), chip.bandwidth, chip.sms
    width, out = element_bytes(dtype), 4.0 if accumulate else OUTPUT_BYTES.get(dtype, 2.0)

    depth = np.ceil(k / (split * K_STEP)) * K_STEP
    tiles = np.ceil(m / tm) * np.ceil(n / tn) * split * batch
    rate = parameters.efficiency * peak / sms / (1 + parameters.operand_cost * (1 / tm + 1 / tn))
    writing = parameters.epilogue * tm * tn * out * (2 if accumulate else 1) / (bandwidth / sms)
    per_wave = 2 * tm * tn * depth / rate + parameters.tile_overhead + writing
    waves = tiles / sms
    waves = (1 - parameters.wave_overlap) * np.ceil(waves) + parameters.wave_overlap * np.maximum(waves, 1)
    seconds = waves * per_wave

    flops = 2 * batch * m * n * k
    busy = flops / seconds / peak
    seconds = seconds * np.maximum(1.0, busy / parameters.power_limit) ** (1 / 3)

    # A wave of w tiles covers a near-square super-tile; its rows and columns are read once per wave.
    side = np.sqrt(np.minimum(tiles / split, np.maximum(sms / split, 1)) * tm * tn)
    again = width * batch * m * n * k * (1 / np.minimum(m, side) + 1 / np.minimum(n, side))
    compulsory = batch * (width * (m * k + n * k) + (2 if accumulate else 1) * out * m * n)
    traffic = compulsory + parameters.reread * again
    seconds = np.maximum(seconds, traffic / (parameters.memory_efficiency * bandwidth))

    reduction = parameters.split_overhead + parameters.split_traffic * 4 * batch * m * n * split / bandwidth
    seconds = seconds + np.where(split > 1, reduction, 0.0) + parameters.latency
    seconds = np.where((split > 1) & (depth < SHORTEST_SPLIT), np.inf, seconds).min(axis=-1)
    floor = np.maximum(flops / peak, compulsory / bandwidth)[..., 0]
    result: Array = np.maximum(seconds, floor)
    return result


def _candidates(tiles: tuple[tuple[int, int], ...]) -> tuple[Array, Array, Array]:
    table = np.array([(tm, tn, split) for tm, tn in tiles for split in SPLITS], float)
    return table[:, 0], table[:, 1], table[:, 2]
