"""How far predicted training steps are from published ones, per source (`clustersim validate steps`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.validation.step_data import StepRow, cluster_of, rows_of, sources, workload_of

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction


@dataclass(frozen=True, slots=True)
class Judged:
    """One row beside its prediction; `refused` says why there is none."""

    row: StepRow
    prediction: Prediction | None
    refused: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured step time, minus one."""
        measured = self.row.step_time
        if self.prediction is None or measured is None:
            return float("nan")
        return self.prediction.step_time_s / measured - 1.0


def judge(row: StepRow) -> Judged:
    """Predict one row."""
    from simulator.description.faults import DescriptionError
    from simulator.simulation import simulate

    try:
        return Judged(row, simulate(cluster_of(row), workload_of(row)))
    except (DescriptionError, ValueError) as error:
        return Judged(row, None, str(error).splitlines()[0] if str(error) else type(error).__name__)


def judge_source(source: str) -> list[Judged]:
    """Every row of a source that reports a step time."""
    return [judge(row) for row in rows_of(source) if row.step_time is not None]


def regret(judged: Sequence[Judged]) -> float | None:
    """How much slower than the best our pick is, averaged over groups of plans for the same model and GPUs."""
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for item in judged:
        if item.prediction is not None:
            row = item.row
            key = (row.model, row.layers, row.hidden, row.heads, row.gpus, row.global_batch, row.sequence)
            groups.setdefault(key, []).append(item)
    lost = []
    for group in groups.values():
        if len(group) > 1:
            pick = min(group, key=lambda item: item.prediction.step_time_s)  # type: ignore[union-attr]
            best = min(item.row.step_time or 0.0 for item in group)
            lost.append((pick.row.step_time or 0.0) / best - 1.0)
    return float(np.mean(lost)) if lost else None


def ordered_pairs(judged: Sequence[Judged], margin: float = 0.05) -> tuple[int, int]:
    """(pairs put in the right order, pairs) among plans of one model and size that differ by over `margin`."""
    right = total = 0
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for item in judged:
        if item.prediction is not None:
            row = item.row
            key = (row.model, row.layers, row.hidden, row.heads, row.gpus, row.global_batch, row.sequence)
            groups.setdefault(key, []).append(item)
    for group in groups.values():
        for i, one in enumerate(group):
            for other in group[i + 1 :]:
                a, b = one.row.step_time or 0.0, other.row.step_time or 0.0
                if max(a, b) > (1 + margin) * min(a, b):
                    total += 1
                    ours = one.prediction.step_time_s - other.prediction.step_time_s  # type: ignore[union-attr]
                    right += (a > b) == (ours > 0)
    return right, total


def summary(judged: Iterable[Judged]) -> dict[str, float | int | str | None]:
    """Rows, mean absolute and signed relative error, 90th percentile, regret."""
    items = [item for item in judged if item.prediction is not None]
    errors = np.array([item.error for item in items])
    if not len(errors):
        return {"rows": 0, "mape": None, "bias": None, "p90": None, "regret": None, "unit": "s"}
    absolute = np.abs(errors)
    return {
        "rows": len(errors),
        "mape": float(absolute.mean()),
        "bias": float(errors.mean()),
        "p90": float(np.quantile(absolute, 0.9)),
        "regret": regret(items),
        "unit": "s",
    }


__all__ = ["judge", "judge_source", "ordered_pairs", "regret", "sources", "summary"]
