"""How far predicted collectives are from measured ones, per machine (`clustersim validate collectives`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.costs.collectives import collective_cost, collective_seconds, load_calibration
from simulator.validation.collective_data import Measurement, measurements, systems

LARGE = 2**20
"""Sizes from here on are limited by bandwidth more than by latency (bytes)."""


@dataclass(frozen=True, slots=True)
class Score:
    """Relative errors of predictions, as fractions: mean absolute, mean signed, 90th percentile, largest.

    `mape_large` and `mape_small` are over sizes from 1 MiB on and below; None where there are none.
    """

    rows: int
    mape: float
    bias: float
    p90: float
    worst: float
    mape_large: float | None
    mape_small: float | None
    unit: str = "s"


def predicted(row: Measurement) -> float:
    """Seconds of a measured collective under the calibration of its machine."""
    system = systems()[row.system]
    calibration = system.library(load_calibration(system.calibration))
    return collective_seconds(collective_cost(row.op, row.size, row.group, calibration), row.group)


def score(rows: Sequence[Measurement]) -> Score:
    """The errors over rows. Raises ValueError where there are none."""
    if not rows:
        raise ValueError("no measurements to score")
    error = np.array([predicted(row) / row.seconds - 1.0 for row in rows])
    size, absolute = np.array([row.size for row in rows]), np.abs(error)

    def mean(chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> float | None:
        return float(absolute[chosen].mean()) if chosen.any() else None

    return Score(
        rows=len(rows),
        mape=float(absolute.mean()),
        bias=float(error.mean()),
        p90=float(np.quantile(absolute, 0.9)),
        worst=float(absolute.max()),
        mape_large=mean(size >= LARGE),
        mape_small=mean(size < LARGE),
    )


def scores(names: Iterable[str] | None = None, split: str = "held") -> dict[str, Score]:
    """Machine → errors over its rows of one split (tune: fitted on; held: judged on; check: looked at)."""
    by_system: dict[str, list[Measurement]] = {}
    for row in measurements(names):
        if row.split == split:
            by_system.setdefault(row.system, []).append(row)
    return {system: score(rows) for system, rows in sorted(by_system.items())}


def suite(names: Iterable[str] | None = None) -> dict[str, Any]:
    """The suite as printed by `validate --json`: judged rows only; the mean is over machines, not over rows."""
    found = scores(names)
    return {
        "sources": {system: {**asdict(s), "regret": None} for system, s in found.items()},
        "mape": float(np.mean([s.mape for s in found.values()])) if found else None,
    }
