"""How far predicted peak memory is from what runs reported (`clustersim validate memory`)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.results.memory import MemoryReport
from simulator.validation.step_data import StepRow, step_rows
from simulator.validation.steps import label, predict_row, wanted
from simulator.validation.suites import Judgement, Refusal, Row


def judge(sources: Sequence[str] | None = None) -> Judgement:
    """Every row with a measured peak."""
    for row in step_rows():
        if row.memory is not None and wanted(row, sources):
            predicted = predict_row(row)
            if isinstance(predicted, Refusal):
                yield predicted
                continue
            peak = as_reported(row, predicted.memory)
            parts = {kind: amount / peak for kind, amount in predicted.memory.by_kind.items() if amount}
            yield Row(row.source, label(row), row.memory / 2**30, peak / 2**30, "GiB", parts=parts)


def as_reported(row: StepRow, memory: MemoryReport) -> float:
    """Bytes that the row's way of measuring sees: nvidia-smi all of it, the allocator not the context."""
    by_kind = memory.by_kind
    seen = memory.peak_bytes
    if "nvidia-smi" not in row.memory_kind:
        seen -= by_kind.get("context", 0.0)
    if "allocated" in row.memory_kind:
        seen -= by_kind.get("fragmentation", 0.0)
    return seen
