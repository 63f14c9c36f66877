"""The table shows what the prediction holds."""

from __future__ import annotations

import re

from simulator.report.text import MOST_STAGES, plain
from tests.results.predictions import from_catalogue

UNMEASURED = {"node.gpu.calibration": "null", "node.gpu.name": "unheard-of"}


def section(text: str, title: str) -> list[str]:
    """The lines after the one that begins with `title`, up to an empty one."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(title))
    rest = lines[first + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def test_the_breakdown_lists_the_kinds_that_take_time_with_bars_as_long_as_their_shares() -> None:
    prediction = from_catalogue()
    rows = [re.split(r"\s{2,}", line) for line in section(plain(prediction), "Where the time goes")]
    assert [row[0] for row in rows] == [kind for kind, s in prediction.breakdown_s.items() if s > 0.0]
    bars = {row[0]: row[-1].count("█") for row in rows}
    shares = {kind: s / max(prediction.breakdown_s.values()) for kind, s in prediction.breakdown_s.items()}
    assert bars["compute"] == 30
    assert all(abs(bar - 30 * shares[kind]) <= 1.0 for kind, bar in bars.items())


def test_memory_has_a_row_per_stage_whose_parts_sum_to_its_peak() -> None:
    rows = [line.split() for line in section(plain(from_catalogue()), "Memory")]
    assert rows[0][:3] == ["stage", "peak", "GiB"]
    for number, row in enumerate(rows[1:]):
        peak, *parts = (0.0 if cell == "-" else float(cell) for cell in row[1:])
        assert int(row[0]) == number
        assert abs(sum(parts) - peak) <= 0.05 * (len(parts) + 1)


def test_of_a_long_pipeline_the_first_last_and_fullest_stages_are_shown() -> None:
    prediction = from_catalogue(pp=16, vpp=1, tp=4, gpus=64, recompute="full")
    rows = [line.split() for line in section(plain(prediction), "Memory")][1:]
    assert len(rows) == MOST_STAGES
    assert [row[0] for row in (rows[0], rows[-1])] == ["0", "15"]
    assert len(prediction.memory.by_stage()) == 16


def test_lines_of_items_break_between_items() -> None:
    for width in (60, 80, 110):
        lines = plain(from_catalogue(), width=width).splitlines()
        broken = [line for line in lines if line.lstrip().startswith(("·", "%"))]
        assert not broken and max(map(len, lines)) <= width
        first = next(line for line in lines if line.startswith("  tp 8 · pp 8"))
        assert lines[lines.index(first) + 1].startswith("  ")


def test_what_does_not_fit_is_said_with_the_shortfall_and_remedies() -> None:
    text = plain(from_catalogue(pp=4))
    assert re.search(r"does not fit, [\d.]+ GiB short", text)
    assert "--set plan." in "\n".join(section(text, "What would fit"))


def test_borrowed_calibrations_and_settings_without_effect_are_pointed_out() -> None:
    assert "borrowed" not in plain(from_catalogue())
    assert "note" not in plain(from_catalogue())
    assert "zero 1 shares nothing out" in plain(from_catalogue(zero=1))
    assert "measured on" in plain(_borrowing())


def _borrowing():  # type: ignore[no-untyped-def]
    import simulator

    cluster = simulator.load_cluster("selene", gpus=8, overrides=UNMEASURED)
    return simulator.simulate(cluster, simulator.load_workload("megatron-22b"))


def test_the_widths_asked_for_are_kept() -> None:
    for width in (80, 110):
        assert max(map(len, plain(from_catalogue(), width=width).splitlines())) <= width
