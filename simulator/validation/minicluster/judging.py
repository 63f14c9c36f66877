"""How close is each prediction to what was measured, beside how well the measurement repeats?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Judged:
    """One measurement beside its prediction (s). For activity both are seconds by which a rank's work was off: its
    `error` is given, over the step time.

    `noise`: half the range of the repeats (the launches' medians, where there are several) over their median.
    """

    source: str
    name: str
    measured: float
    predicted: float
    noise: float
    error: float
    group: str = ""
    developed_on: bool = False


def judged(
    source: str, name: str, measured: float, predicted: float, noise: float = 0.0, **more: Any
) -> Judged:
    """A pair of times, with the relative error of the prediction."""
    return Judged(source, name, measured, predicted, noise, predicted / measured - 1.0, **more)


def noise(values: Sequence[float]) -> float:
    """Half the range over the median; zero for a single value."""
    return (max(values) - min(values)) / 2 / median(values)


@dataclass(frozen=True)
class Score:
    """Errors as fractions. `noise` is the mean of the rows'."""

    rows: int
    mape: float
    bias: float
    worst: float
    noise: float


def score(rows: Sequence[Judged]) -> Score:
    """Raises ValueError without rows."""
    if not rows:
        raise ValueError("nothing to score")
    errors = np.array([row.error for row in rows])
    return Score(
        rows=len(rows),
        mape=float(np.abs(errors).mean()),
        bias=float(errors.mean()),
        worst=float(errors[np.abs(errors).argmax()]),
        noise=float(np.mean([row.noise for row in rows])),
    )


def order(rows: Sequence[Judged]) -> tuple[int, int, list[str]]:
    """(pairs in the right order, pairs, those in the wrong one) of alternatives that differ by over twice the noise."""
    right, wrong = 0, []
    for place, one in enumerate(rows):
        for other in rows[place + 1 :]:
            if not one.group or one.group != other.group:
                continue
            apart = abs(one.measured - other.measured) / min(one.measured, other.measured)
            if apart <= 2 * max(one.noise, other.noise):
                continue
            if (one.measured > other.measured) == (one.predicted > other.predicted):
                right += 1
            else:
                wrong.append(f"{one.name} against {other.name} ({apart:.1%} apart)")
    return right, right + len(wrong), wrong


TARGETS = {
    "sharing": 0.02,
    "collectives": 0.03,
    "all-to-all": 0.08,
    "contention": 0.04,
    "steps": 0.04,
    "activity": 0.05,
}
"""Mean absolute error that each source is to stay under."""


def summary(rows: Sequence[Judged]) -> dict[str, Any]:
    """Scores by source, in the order of TARGETS; the order of alternatives; rows off by more than a tenth."""
    sources = {name: [row for row in rows if row.source == name] for name in TARGETS}
    right, pairs, wrong = order([row for row in rows if row.source == "steps"])
    unseen = [row for row in sources["steps"] if not row.developed_on]
    return {
        "sources": {
            name: {**asdict(score(found)), "target": TARGETS[name]}
            for name, found in sources.items()
            if found
        },
        "steps_not_developed_on": asdict(score(unseen)) if unseen else None,
        "order": {"right": right, "pairs": pairs, "wrong": wrong},
        "over_a_tenth": [row.name for row in rows if row.source == "steps" and abs(row.error) > 0.10],
    }
