"""Which interval around a prediction holds the measurements? Quantiles over sources, judged with each left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.validation.scores import Row

NOMINAL = 0.90


@dataclass(frozen=True, slots=True)
class Coverage:
    """The interval over all sources, and how much of each source lies inside the one that the others give."""

    low: float
    high: float
    by_source: dict[str, float]
    rows: int

    @property
    def mean(self) -> float:
        """Over rows."""
        return self.by_source["all"]


def intervals(by_source: Mapping[str, Sequence[Row]], nominal: float = NOMINAL) -> Coverage:
    """Quantiles of measured over predicted, with leave-one-source-out coverage. Needs two sources or more."""
    ratios = {
        name: np.array([row.measured / row.predicted for row in rows])
        for name, rows in by_source.items()
        if rows
    }
    inside: dict[str, float] = {}
    hits = total = 0
    for name, values in ratios.items():
        low, high = quantiles({other: v for other, v in ratios.items() if other != name}, nominal)
        held = (values >= low) & (values <= high)
        inside[name] = float(held.mean())
        hits, total = hits + int(held.sum()), total + len(values)
    low, high = quantiles(ratios, nominal)
    return Coverage(low, high, {**inside, "all": hits / total}, total)


def quantiles(ratios: Mapping[str, np.ndarray], nominal: float) -> tuple[float, float]:
    """Central interval of the ratios; a source counts once however many rows it has."""
    values = np.concatenate(list(ratios.values()))
    weights = np.concatenate([np.full(len(v), 1.0 / len(v)) for v in ratios.values()])
    order = np.argsort(values)
    below = (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum()
    tail = (1.0 - nominal) / 2.0
    low, high = np.interp([tail, 1.0 - tail], below, values[order])
    return float(low), float(high)
