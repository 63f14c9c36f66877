"""Which attention parameters explain measured fused attention?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.calibration.fit_gemm import rounded
from simulator.calibration.relative_fit import Array, Bounds, fit_parameters, relative_error, thinned
from simulator.costs.kernels.attention import HEAD_STEP, attention_seconds, for_head_size
from simulator.costs.kernels.calibration import AttentionParameters, Fit
from simulator.costs.kernels.chip import Chip

if TYPE_CHECKING:
    import pandas as pd

    from simulator.validation.kernel_data import Mask

Table = dict[int, AttentionParameters]

BOUNDS: Bounds = {
    "efficiency": (0.3, 1.0),
    "softmax_flops": (0.0, 900.0),
    "block_overhead": (0.0, 1e-5),
    "latency": (1e-6, 4e-5),
    "imbalance": (0.0, 1.5),
    "alone": (0.3, 2.0),
    "extra_traffic": (0.0, 10.0),
    "throttle": (0.0, 0.4),
}
START: dict[str, float] = {
    "efficiency": 0.75,
    "softmax_flops": 100.0,
    "block": 128,
    "block_overhead": 1e-6,
    "latency": 8e-6,
    "imbalance": 0.5,
    "alone": 1.0,
    "extra_traffic": 1.0,
    "throttle": 0.05,
    "throttle_time": 2e-3,
}
ROWS = 1200
SHARED = ("softmax_flops", "latency", "extra_traffic")
"""What kernels of all head sizes have in common where there are only some tens of rows for each."""


def fit_serving(rows: pd.DataFrame, chip: Chip) -> Table:
    """Parameters by head size from an inference engine's causal forward passes (thousands of rows)."""
    found = {}
    for size, own in rows.groupby("head_dim"):
        some = own.iloc[thinned(len(own), ROWS)].reset_index(drop=True)
        found[int(str(size))] = _parameters(_fitted(some, chip, BOUNDS))
    return found


def fit_training(rows: pd.DataFrame, chip: Chip, at: Sequence[int]) -> Table:
    """Parameters at head sizes `at` from rows of one direction: an efficiency each, the rest in common.

    A row belongs to the nearest of these head sizes (after padding).
    """
    rows = rows.reset_index(drop=True)
    nearest = np.array([_nearest(at, size) for size in rows.head_dim])
    bounds = {name: BOUNDS[name] for name in SHARED}
    bounds |= {f"efficiency {size}": BOUNDS["efficiency"] for size in at}
    start = {**START, **{f"efficiency {size}": 0.7 for size in at}, "block_overhead": 0.0, "throttle": 0.0}

    def table(values: Mapping[str, float]) -> Table:
        common: dict[str, Any] = {name: values[name] for name in START}
        return {
            size: AttentionParameters.model_construct(
                **{**common, "efficiency": values[f"efficiency {size}"]}
            )
            for size in at
        }

    def predict(values: dict[str, float]) -> Array:
        out, found = np.empty(len(rows)), table(values)
        for size in at:
            mine = nearest == size
            out[mine] = predicted(rows[mine], chip, {size: found[size]})
        return out

    values = fit_parameters(predict, rows.seconds.to_numpy(), bounds, start)
    return {size: _parameters(parameters.model_dump()) for size, parameters in table(values).items()}


def predicted(rows: pd.DataFrame, chip: Chip, table: Mapping[int, AttentionParameters]) -> Array:
    """Predicted seconds of every row, whatever mixture of head sizes, directions and masks it is."""
    rows = full(rows)
    out = np.empty(len(rows))
    keys = ["head_dim", "causal", "direction", "dtype"]
    kernels: dict[tuple[Any, ...], Any] = rows.groupby(keys).indices  # type: ignore[assignment]
    for (size, causal, direction, dtype), places in kernels.items():
        part = rows.iloc[places]
        out[places] = attention_seconds(
            **{name: part[name].to_numpy() for name in SHAPE},
            causal=bool(causal),
            backward=direction == "backward",
            dtype=str(dtype),
            chip=chip,
            parameters=for_head_size(table, HEAD_STEP * np.ceil(size / HEAD_STEP)),
        )
    return out


SHAPE = ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "head_dim_v")


def full(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with every column that attention has; those of an inference engine leave out what is always the same."""
    if "seq" not in rows:
        return rows
    return rows.assign(
        seq_q=rows.seq,
        seq_kv=rows.seq,
        head_dim_v=rows.head_dim,
        causal=True,
        direction="forward",
        dtype="bf16",
    )


def judged(rows: pd.DataFrame, chip: Chip, table: Table, splits: Mapping[str, Mask], note: str = "") -> Fit:
    """The fit's error, and for each split that of a fit which never saw the rows it is judged on."""
    holdout = {}
    for name, left_out in splits.items():
        other = fit_serving(rows[~left_out], chip)
        unseen = rows[left_out]
        holdout[name] = relative_error(predicted(unseen, chip, other), unseen.seconds.to_numpy())
    error = relative_error(predicted(rows, chip, table), rows.seconds.to_numpy())
    return Fit(rows=len(rows), error=error, holdout=holdout, note=note)


def _fitted(rows: pd.DataFrame, chip: Chip, bounds: Bounds) -> dict[str, float]:
    size = int(rows.head_dim.iloc[0])

    def predict(values: dict[str, Any]) -> Array:
        return predicted(rows, chip, {size: AttentionParameters.model_construct(**values)})

    return fit_parameters(predict, rows.seconds.to_numpy(), bounds, START)


def _parameters(values: Mapping[str, float]) -> AttentionParameters:
    kept: dict[str, Any] = {**rounded(values), "block": int(values["block"])}
    return AttentionParameters(**kept)


def _nearest(sizes: Sequence[int], head_dim: float) -> int:
    padded = HEAD_STEP * np.ceil(head_dim / HEAD_STEP)
    return min(sizes, key=lambda size: (abs(np.log(size / padded)), -size))
