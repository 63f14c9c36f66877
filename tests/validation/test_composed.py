"""Tables of sums are told from tables of measurements."""

from __future__ import annotations

from dataclasses import replace

from simulator.validation.composed import ROUNDING, tables
from simulator.validation.step_data import StepRow, rows_of, step_rows


def test_vtrains_small_table_is_a_sum_and_its_large_one_is_not() -> None:
    composed = {name: table for name, table in tables(step_rows()).items() if table.composed}
    ((name, table),) = composed.items()
    assert name.endswith("ground_truth_single.csv")
    assert (len(table.rows), table.layouts) == (720, 144)


def test_a_thousandth_of_scatter_makes_a_measurement() -> None:
    rows = [row for row in rows_of("vtrain") if "single" in row.locator]
    scattered = [_slower(row, 1e-3 * (index % 3)) for index, row in enumerate(rows)]
    (table,) = tables(scattered).values()
    assert table.deviation > 10 * ROUNDING
    assert not table.composed


def test_two_batch_sizes_prove_nothing() -> None:
    rows = [row for row in rows_of("vtrain") if "single" in row.locator and row.micro_batch == "8"]
    (table,) = tables(rows).values()
    assert table.layouts == 0
    assert not table.composed


def test_more_replicas_add_the_all_reduce_of_the_same_repository() -> None:
    """12 layers of 1,024, tp 2: its table has 1,394.2 us for 244 MiB on two GPUs and 1,842.3 on four."""
    times = {
        row.number("dp"): row.step_time or 0.0
        for row in rows_of("vtrain")
        if (row.layers, row.hidden, row.tp, row.pp, row.micro_batch) == ("12", "1024", "2", "1", "1")
        and row.number("global_batch") == 4 * row.number("dp")
    }
    one, two, four = (times[dp] for dp in (1, 2, 4))
    assert abs(two - one - 1.3942e-3) < 2e-6
    assert abs(four - one - 1.8423e-3) < 2e-6


def _slower(row: StepRow, part: float) -> StepRow:
    return replace(row, values={**row.values, "step_time_s": str((row.step_time or 0.0) * (1.0 + part))})
