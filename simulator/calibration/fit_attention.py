"""Which attention parameters explain measured fused attention?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
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
    "uneven": 1.0,
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
UNEVEN = (1.0, 1.5)
DIRECTIONS, BOTH = ("forward", "backward"), "both"
SHARED = ("softmax_flops", "latency", "extra_traffic")
"""What kernels of all head sizes have in common where there are only some tens of rows for each."""


def fit_serving(rows: pd.DataFrame, chip: Chip) -> Table:
    """Parameters by head size from an inference engine's causal forward passes (thousands of rows)."""
    found = {}
    for size, own in rows.groupby("head_dim"):
        some = own.iloc[thinned(len(own), ROWS)].reset_index(drop=True)
        found[int(str(size))] = _parameters(_fitted(some, chip, BOUNDS))
    return found


def fit_training(rows: pd.DataFrame, chip: Chip, at: Sequence[int], linked: bool = False) -> dict[str, Table]:
    """Parameters by direction at head sizes `at`: an efficiency each, the rest of a direction in common.

    `direction` of a row is forward, backward or both, one after the other. A row belongs to the nearest of the head
    sizes (after padding). `linked`: that neighbouring sizes are equally efficient counts as one more measurement each,
    where sizes have but a few rows and equal work differs as much from row to row as neighbours do.
    """
    rows = rows.reset_index(drop=True)
    directions = [one for one in DIRECTIONS if rows.direction.isin([one, BOTH]).any()]
    sizes = [f"efficiency {size}" for size in at]
    uneven = {"uneven": UNEVEN} if (rows.head_dim % HEAD_STEP).any() else {}
    if rows.direction.eq(BOTH).any():
        uneven["imbalance"] = BOUNDS["imbalance"]
    one_way = {
        **{name: BOUNDS[name] for name in SHARED},
        **uneven,
        **dict.fromkeys(sizes, BOUNDS["efficiency"]),
    }
    first = {**START, **dict.fromkeys(sizes, 0.7), "block_overhead": 0.0, "throttle": 0.0}
    bounds = {f"{way} {name}": limits for way in directions for name, limits in one_way.items()}
    start = {f"{way} {name}": value for way in directions for name, value in first.items()}

    def tables(values: Mapping[str, float]) -> dict[str, Table]:
        return {way: _table({name: values[f"{way} {name}"] for name in first}, at) for way in directions}

    links = [(way, *pair) for way in directions for pair in pairwise(sizes)] if linked else []

    def predict(values: Mapping[str, float]) -> Array:
        steps = [values[f"{way} {one}"] / values[f"{way} {other}"] for way, one, other in links]
        return np.append(predicted_training(rows, chip, tables(values)), steps)

    values = fit_parameters(predict, np.append(rows.seconds, np.ones(len(links))), bounds, start)
    return {
        way: {size: _parameters(found.model_dump()) for size, found in table.items()}
        for way, table in tables(values).items()
    }


def _table(values: Mapping[str, float], at: Sequence[int]) -> Table:
    shared: dict[str, Any] = {name: values[name] for name in START}
    return {
        size: AttentionParameters.model_construct(**{**shared, "efficiency": values[f"efficiency {size}"]})
        for size in at
    }


def predicted_training(rows: pd.DataFrame, chip: Chip, tables: Mapping[str, Table]) -> Array:
    """Predicted seconds of rows of either direction, and of both together."""
    out = np.zeros(len(rows))
    for way, table in tables.items():
        mine = rows.direction.isin([way, BOTH]).to_numpy()
        if mine.any():
            out[mine] += predicted(rows[mine].assign(direction=way), chip, table)
    return out


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
