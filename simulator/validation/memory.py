"""How far predicted peak memory is from what runs reported (`clustersim validate memory`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.results.memory import MemoryReport
from simulator.validation.scores import Judgement, Refusal, Row
from simulator.validation.step_data import StepRow, step_rows
from simulator.validation.steps import label, predict_row, wanted


def judge(sources: Sequence[str] | None = None) -> Judgement:
    """Every row with a measured peak."""
    for row in step_rows():
        if row.memory is not None and wanted(row, sources):
            predicted = predict_row(row)
            if isinstance(predicted, Refusal):
                yield predicted
                continue
            peak, kinds = as_reported(row, predicted.memory)
            parts = {kind: amount / peak for kind, amount in kinds.items() if amount}
            yield Row(row.source, label(row), row.memory / 2**30, peak / 2**30, "GiB", parts=parts)


def as_reported(row: StepRow, memory: MemoryReport) -> tuple[float, Mapping[str, float]]:
    """Bytes that the row's way of measuring sees, in all and by kind.

    nvidia-smi sees all, the allocator not the context, and what it says is allocated leaves out its slack too. Some
    programs log the last rank alone.
    """
    seen = dict((memory.by_stage()[-1] if "last rank" in row.memory_kind else memory.fullest).by_kind)
    if "nvidia-smi" not in row.memory_kind:
        seen.pop("context", None)
    if "allocated" in row.memory_kind:
        seen.pop("fragmentation", None)
    return sum(seen.values()), seen
