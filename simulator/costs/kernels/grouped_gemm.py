"""How long do the experts' matrix multiplications take? One GEMM per group in one launch, the fullest last.

The groups' tiles share the SMs, so waves form over all of them: a batched GEMM of the mean size, but at least the
fullest group alone.
"""

from __future__ import annotations

from math import ceil

from simulator.costs.kernels.calibration import GemmParameters
from simulator.costs.kernels.chip import Chip
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.workloads.operators import GroupedGemm


def grouped_gemm_seconds(kernel: GroupedGemm, chip: Chip, parameters: GemmParameters) -> float:
    """Seconds of `groups` GEMMs launched together, each of m/groups rows."""
    rows = max(1, ceil(kernel.m / kernel.groups))
    fullest = max(rows, ceil(rows * kernel.imbalance))
    together, alone = gemm_seconds(
        [rows, fullest],
        kernel.n,
        kernel.k,
        chip=chip,
        parameters=parameters,
        dtype=kernel.dtype,
        batch=[kernel.groups, 1],
        accumulate=kernel.accumulate,
    )
    return float(max(together, alone))
