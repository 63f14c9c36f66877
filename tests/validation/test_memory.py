"""Predicted peaks against those that runs reported."""

from __future__ import annotations

import pytest

from simulator.cli.validate import judged
from simulator.results.memory import ClassMemory, MemoryReport
from simulator.validation.memory import as_reported, judge
from simulator.validation.scores import Row
from simulator.validation.step_data import StepRow


@pytest.mark.parametrize(
    ("source", "rows"),
    [("torchtitan", 14), ("mbridge_skills", 6), ("mbridge_skills_moe", 5), ("megatron_ci_golden", 35)],
)
def test_peaks_are_within_eight_percent(source: str, rows: int) -> None:
    errors = [abs(row.error) for row in judge([source]) if isinstance(row, Row)]
    assert len(errors) == rows
    assert sum(errors) / len(errors) < 0.08


def test_a_source_without_step_times_is_judged_on_memory() -> None:
    rows, refused = judged("mbridge_skills")
    assert len(rows) == 6
    assert {row.unit for row in rows} == {"GiB"}
    assert not refused


def test_each_way_of_measuring_sees_its_part() -> None:
    first = {"activations": 30.0, "fragmentation": 2.0, "context": 5.0}
    last = {"activations": 10.0, "fragmentation": 1.0, "context": 5.0}
    report = MemoryReport(
        tuple(
            ClassMemory(f"stage {stage}", stage, 1, sum(kinds.values()), 80.0, 0.0, kinds)
            for stage, kinds in enumerate((first, last))
        )
    )

    def seen(kind: str) -> float:
        return as_reported(StepRow({"memory_kind": kind}), report)[0]

    assert seen("nvidia-smi GB of first/last node (rounded)") == 37.0
    assert seen("peak (max over ranks), reserved GiB") == 32.0
    assert seen("peak allocated (source GB converted to GiB)") == 30.0
    assert seen("peak allocated on the last rank") == 10.0
