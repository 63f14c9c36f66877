"""How long do the experts' matrix multiplications take? One GEMM per group, sharing the SMs, the fullest last.

The groups' tiles run in one launch, so waves form over all of them: a batched GEMM of the mean size, stretched by
what the fullest group adds once the others are done.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.costs.kernels.calibration import GemmParameters
from simulator.costs.kernels.chip import Chip
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.workloads.operators import GroupedGemm


def grouped_gemm_seconds(kernel: GroupedGemm, chip: Chip, parameters: GemmParameters) -> float:
    """Seconds of `groups` GEMMs launched together, each of m/groups rows; at least the fullest group's own time."""
    rows = max(1, math.ceil(kernel.m / kernel.groups))
    fullest = max(rows, math.ceil(rows * kernel.imbalance))
    shapes = np.array([rows, fullest], float), float(kernel.n), float(kernel.k)
    batch = np.array([kernel.groups, 1], float)
    together, alone = gemm_seconds(*shapes, chip=chip, parameters=parameters, dtype=kernel.dtype, batch=batch)
    return float(max(together, alone))
