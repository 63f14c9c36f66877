"""What a measurement beside its prediction is, and how far a number of them are off.

A suite turns its measurements into `Row`s; scores, tables, plots and JSON are made of these alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement beside its prediction. `group` names what it is an alternative to (for regret), `layout` the
    alternative: of one measured more than once the mean counts there. Empty: one of its own.
    """

    source: str
    name: str
    measured: float
    predicted: float
    unit: str
    group: str = ""
    parts: dict[str, float] = field(default_factory=dict)
    """What the prediction consists of, as fractions."""
    layout: str = ""

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A measurement that could not be predicted, and why."""

    source: str
    name: str
    reason: str


Judgement = Iterator[Row | Refusal]


@dataclass(frozen=True, slots=True)
class Score:
    """Errors as fractions: mean absolute, mean signed, 90th percentile of the absolute; regret where it applies."""

    rows: int
    mape: float
    bias: float
    p90: float
    regret: float | None
    unit: str


def score(rows: Sequence[Row]) -> Score:
    """The errors over rows. Raises ValueError where there are none."""
    if not rows:
        raise ValueError("no measurements to score")
    error = np.array([row.error for row in rows])
    absolute = np.abs(error)
    return Score(
        rows=len(rows),
        mape=float(absolute.mean()),
        bias=float(error.mean()),
        p90=float(np.quantile(absolute, 0.9)),
        regret=regret(rows),
        unit=rows[0].unit,
    )


def regret(rows: Iterable[Row]) -> float | None:
    """How much slower than the best alternative our pick is, averaged over groups of two or more."""
    lost = [
        min(group, key=lambda row: row.predicted).measured / min(row.measured for row in group) - 1.0
        for group in _groups(rows)
    ]
    return float(np.mean(lost)) if lost else None


def ordered_pairs(rows: Iterable[Row], margin: float = 0.05) -> tuple[int, int]:
    """(pairs put in the right order, pairs) among alternatives whose measurements differ by over `margin`."""
    right = total = 0
    for group in _groups(rows):
        for index, one in enumerate(group):
            for other in group[index + 1 :]:
                if max(one.measured, other.measured) > (1 + margin) * min(one.measured, other.measured):
                    total += 1
                    right += (one.measured > other.measured) == (one.predicted > other.predicted)
    return right, total


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Alternatives of two layouts or more, one row each."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for index, row in enumerate(rows):
        if row.group:
            groups.setdefault(row.group, {}).setdefault(row.layout or str(index), []).append(row)
    return [[_mean(runs) for runs in layouts.values()] for layouts in groups.values() if len(layouts) > 1]


def _mean(runs: Sequence[Row]) -> Row:
    """One layout's runs as one row."""
    return replace(runs[0], measured=float(np.mean([run.measured for run in runs])))
