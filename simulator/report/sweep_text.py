"""What a sweep found: how many points there are, what went wrong, and the front of the trade-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from simulator.sweeps.runner import Summary
    from simulator.sweeps.sweep import Sweep

MOST_ERRORS = 5
MOST_FRONT = 20


def sweep_text(sweep: Sweep, table: Sequence[Mapping[str, Any]], summary: Summary, width: int = 110) -> str:
    """What `clustersim sweep` prints."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(_counts(table, summary))
        for message, count in _errors(table):
            console.print(f"  {count:,} x {message}", soft_wrap=True)
        console.print()
        console.print(_front(sweep, table))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _counts(table: Sequence[Mapping[str, Any]], summary: Summary) -> str:
    fit = sum(row.get("memory.fits") is True for row in table)
    done = sum(row["status"] == "done" for row in table)
    added = ", ".join(f"{count:,} {status}" for status, count in summary.added.items()) or "nothing to do"
    before = f" ({summary.before:,} had results)" if summary.before else ""
    return f"{summary.total:,} points{before}: {added}; {done:,} have predictions, {fit:,} of them fit"


def _errors(table: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for row in table:
        if row["error"]:
            message = str(row["error"]).splitlines()[0]
            counts[message] = counts.get(message, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])[:MOST_ERRORS]


def _front(sweep: Sweep, table: Sequence[Mapping[str, Any]]) -> Table:
    names = [*sweep.pareto.minimize, *sweep.pareto.maximize]
    kept = sorted((row for row in table if row["pareto"]), key=lambda row: row[names[0]] if names else 0)
    keys = dict.fromkeys(key for row in kept for key in row if _is_setting(key))
    settings = [key for key in keys if _varies(key, table)]
    shown = Table(box=None, padding=(0, 2, 0, 0), title="Pareto front", title_justify="left")
    for name in (*names, *settings):
        shown.add_column(name, justify="right" if name in names else "left")
    for row in kept[:MOST_FRONT]:
        shown.add_row(*[f"{row[name]:.5g}" for name in names], *[str(row.get(key, "")) for key in settings])
    return shown


def _varies(key: str, table: Sequence[Mapping[str, Any]]) -> bool:
    return len({str(row.get(key)) for row in table}) > 1


def _is_setting(key: str) -> bool:
    return key in ("cluster", "workload") or key.startswith(
        ("cluster.", "workload.", "model.", "plan.", "best.")
    )
