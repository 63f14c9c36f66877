"""`clustersim sweep`: run every point of a sweep file, and resume where it was stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.sweeps.processes import Pool
    from simulator.sweeps.runner import Progress, Summary
    from simulator.sweeps.sweep import Sweep

STORE = "results.sqlite"


def command(
    sweep: Annotated[str, typer.Argument(help="Catalogue name or path of a sweep file.")],
    out: Annotated[Path, typer.Option(help="Folder for the results; made if it is not there.")],
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one per CPU if left out.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a dask scheduler (tcp://HOST:PORT) whose workers do the work instead."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the results in the folder.")] = False,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write results.parquet too (needs pyarrow).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run all points; write results.sqlite, results.csv and pareto.svg. Exit code 1 if a point failed."""
    from simulator.cli.main import DONE, FAILED
    from simulator.description import load
    from simulator.description.faults import KeyFaults
    from simulator.sweeps.points import points
    from simulator.sweeps.runner import run
    from simulator.sweeps.store import Store

    described: Sweep = load("sweep", sweep)
    every = points(described)
    out.mkdir(parents=True, exist_ok=True)
    with Store(out / STORE) as store:
        if len(store) and not resume:
            raise KeyFaults([("--out", f"{out} has {len(store)} results; add --resume to go on with them")])
        try:
            with _pool(jobs, scheduler) as pool, _watched() as progress:
                summary = run(described, every, store, pool, progress)
            table = _write(described, every, store, out, parquet)
        except KeyboardInterrupt:
            typer.echo(f"stopped: {len(store)} results are kept; --resume goes on", err=True)
            raise typer.Exit(FAILED) from None
    _tell(described, table, summary, out, as_json)
    raise typer.Exit(FAILED if summary.added.get("failed") else DONE)


def _write(sweep: Sweep, every: Sequence[Any], store: Any, out: Path, parquet: bool) -> list[dict[str, Any]]:
    from simulator.report.sweep_plot import svg, sweep_figure
    from simulator.sweeps.export import replace, rows, write_csv, write_parquet

    table = rows(sweep, every, store)
    write_csv(table, out / "results.csv")
    if parquet:
        write_parquet(table, out / "results.parquet")
    axes = [*sweep.pareto.minimize, *sweep.pareto.maximize]
    if len(axes) > 1:
        first = next(iter(sweep.grid), None)
        replace(out / "pareto.svg", svg(sweep_figure(table, axes[0], axes[1], first)))
    return table


@contextmanager
def _pool(jobs: int | None, scheduler: str | None) -> Iterator[Pool | None]:
    from simulator.sweeps.processes import LocalPool, available_jobs

    if scheduler is not None:
        from simulator.sweeps.dask_pool import dask_pool

        with dask_pool(scheduler) as pool:
            yield pool
    else:
        processes = jobs or available_jobs()
        yield LocalPool(processes) if processes > 1 else None


@contextmanager
def _watched() -> Iterator[Progress]:
    """A bar with the time that remains on a terminal; nothing in a pipe."""
    from simulator.sweeps.runner import Progress

    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("points"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("points", total=None)
        yield Progress(lambda done, total: bar.update(task, completed=done, total=total))


def _tell(sweep: Sweep, table: list[dict[str, Any]], summary: Summary, out: Path, as_json: bool) -> None:
    front = [row for row in table if row["pareto"]]
    if as_json:
        import json

        told = {
            "points": summary.total,
            "before": summary.before,
            "added": summary.added,
            "pareto": front,
            "out": str(out),
        }
        typer.echo(json.dumps(told, indent=2, allow_nan=False))
        return
    from simulator.report.sweep_text import sweep_text

    sys.stdout.write(sweep_text(sweep, table, summary))
    typer.echo(f"written to {out}")
