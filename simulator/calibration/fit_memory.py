"""Which latency and which efficiencies explain measured memory-bound operators?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.calibration.fit_gemm import rounded
from simulator.calibration.relative_fit import Array, Bounds, fit_parameters, relative_error
from simulator.costs.kernels.calibration import MemoryParameters
from simulator.costs.kernels.chip import Chip
from simulator.costs.kernels.memory_bound import memory_bound_seconds

if TYPE_CHECKING:
    import pandas as pd

LATENCY = (5e-7, 3e-5)
EFFICIENCY = (0.05, 1.0)


def fit_memory(rows: pd.DataFrame, chip: Chip, base: MemoryParameters | None = None) -> MemoryParameters:
    """One latency and an efficiency per operator measured (op, bytes, row, kernels, seconds); others, and the longest
    row that the caches keep, as in `base`.
    """
    ops = sorted(rows.op.unique())
    bounds: Bounds = {"latency": LATENCY, **dict.fromkeys(ops, EFFICIENCY)}
    start = {"latency": 3e-6, **dict.fromkeys(ops, 0.7)}

    def parameters(values: dict[str, float], known: Mapping[str, float]) -> MemoryParameters:
        return MemoryParameters.model_construct(
            latency=values["latency"],
            efficiency={**known, **{op: values[op] for op in ops}},
            kept_row=base.kept_row if base else None,
        )

    found = fit_parameters(
        lambda values: predicted(rows, chip, parameters(values, {})), rows.seconds.to_numpy(), bounds, start
    )
    return parameters(rounded(found), base.efficiency if base else {})


def error_in_turn(rows: pd.DataFrame, parts: NDArray[np.int64], chip: Chip, base: MemoryParameters) -> float:
    """Mean error with every part of the rows kept out of a fit of its own: some tens of rows leave a single split to
    chance. An operator that the others lack is priced as in `base`.
    """
    predictions = np.empty(len(rows))
    for part in np.unique(parts):
        out = parts == part
        predictions[out] = predicted(rows[out], chip, fit_memory(rows[~out], chip, base))
    return relative_error(predictions, rows.seconds.to_numpy())


def predicted(rows: pd.DataFrame, chip: Chip, parameters: MemoryParameters) -> Array:
    """Predicted seconds of every row."""
    out = np.empty(len(rows))
    for op, places in rows.groupby("op").indices.items():
        part = rows.iloc[places]
        out[places] = memory_bound_seconds(
            str(op), part.bytes.to_numpy(), chip, parameters, part.kernels.to_numpy(), part.row.to_numpy()
        )
    return out
