"""Which published step times are sums of profiled parts, not measured runs?

A run's time scatters by a thousandth at least. Where the steps of one layout at three or more batch sizes lie on a
straight line to the last digit printed, and all layouts of a table do, somebody's model has written them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simulator.validation.step_data import StepRow

ROUNDING = 1e-5
"""Deviation from a line, as a fraction of the time, that six printed digits explain."""


@dataclass(frozen=True, slots=True)
class Table:
    """A published table: its rows, layouts with at least three batch sizes, and how far they are off their lines."""

    rows: tuple[StepRow, ...]
    layouts: int
    deviation: float

    @property
    def composed(self) -> bool:
        """Whether no run can have been measured for it."""
        return self.layouts > 1 and self.deviation <= ROUNDING


def tables(rows: Iterable[StepRow]) -> dict[str, Table]:
    """Table (a row's place in its source without the line) → what it looks like."""
    found: dict[str, list[StepRow]] = {}
    for row in rows:
        if row.step_time is not None:
            found.setdefault(re.sub(r" line \d+$", "", row.locator), []).append(row)
    return {name: _table(members) for name, members in found.items()}


def _table(rows: list[StepRow]) -> Table:
    layouts: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        layouts.setdefault(row.layout("global_batch"), {})[row.number("global_batch")] = row.step_time or 0.0
    deviations = [_off_the_line(times) for times in layouts.values() if len(times) > 2]
    return Table(tuple(rows), len(deviations), max(deviations, default=0.0))


def _off_the_line(times: Mapping[int, float]) -> float:
    """Largest deviation of seconds by batch size from the line through first and last, as a fraction."""
    (first, start), *between, (last, end) = sorted(times.items())
    line = ((batch, start + (end - start) * (batch - first) / (last - first)) for batch, _ in between)
    return max(abs(times[batch] / expected - 1.0) for batch, expected in line)
