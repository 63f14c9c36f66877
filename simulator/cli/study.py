"""`clustersim study`: a published system's what-if; ours beside its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.studies.outcome import Finding, Outcome
    from simulator.studies.study import Study


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Catalogue names or paths (clustersim list studies).", metavar="NAME..."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every study of the catalogue.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    refit: Annotated[
        bool, typer.Option(help="Find the fitted numbers again instead of taking those written.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Draw the figures into this folder.")] = None,
) -> None:
    """Compare with what a publication found. Exit code 1 if ours lies outside the range of any check."""
    from simulator.cli.main import DONE, FAILED
    from simulator.description import catalogue, load
    from simulator.description.faults import DescriptionError, Place, fault_at

    chosen = catalogue.names("study") if every else names or []
    if not chosen:
        known = ", ".join(catalogue.names("study"))
        raise DescriptionError([fault_at(Place("study"), "NAME", f"name a study, or --all (known: {known})")])
    if plots is not None and not plots.is_dir():
        raise DescriptionError([fault_at(Place(f"--plots {plots}"), "--plots", "is no folder")])
    studies = [load("study", name) for name in chosen]
    outcomes = [_run(study, refit, plots, not as_json) for study in studies]
    if as_json:
        typer.echo(as_text(outcomes))
    raise typer.Exit(DONE if all(outcome.ok for outcome in outcomes) else FAILED)


def as_text(outcomes: list[Outcome]) -> str:
    """The object of `--json`."""
    import json

    tree = {"studies": {outcome.study.name: outcome.to_dict() for outcome in outcomes}}
    return json.dumps(tree, indent=2, allow_nan=False)


def _run(study: Study, refit: bool, plots: Path | None, tell: bool) -> Outcome:
    from rich.console import Console

    from simulator.studies.fitting import refit as find
    from simulator.studies.outcome import run_study

    console = Console(highlight=False)
    with console.status(study.title) if tell and console.is_terminal else _nothing() as status:

        def announce(text: str) -> None:
            if status is not None:
                status.update(f"{study.name}: {text}")

        fitted = find(study, announce) if refit else None
        outcome = run_study(study, fitted, announce)
        if plots is not None:
            from simulator.studies.pictures import write_plots

            write_plots(outcome, plots)
    if tell:
        _print(outcome, console)
    return outcome


def _nothing():  # type: ignore[no-untyped-def]
    from contextlib import nullcontext

    return nullcontext()


def _print(outcome: Outcome, console: Console) -> None:
    from rich.table import Table

    study = outcome.study
    console.print(f"\n[bold]{study.name}[/bold]: {study.title}")
    console.print(" ".join(study.about.split()), style="dim")
    for key, value in outcome.fitted.items():
        console.print(f"fitted: {key} = {study.fits[key].setting(value)} ({study.fits[key].why})")
    table = Table(box=None, pad_edge=False)
    for column in ("", "check", "ours", "published", "range"):
        table.add_column(
            column, justify="right" if column in ("ours", "published") else "left", overflow="fold"
        )
    for finding in outcome.findings:
        mark = "[green]ok[/green]" if finding.ok else "[red]outside[/red]"
        table.add_row(mark, finding.name, _number(finding.ours), _number(finding.published), _range(finding))
    console.print(table)
    for why in dict.fromkeys(finding.why for finding in outcome.findings):
        console.print(f"range: {why}", style="dim")
    for gap in dict.fromkeys(f.gap for f in outcome.findings if f.gap and not f.ok):
        console.print(f"outside: {gap}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _range(finding: Finding) -> str:
    if finding.low is None:
        return f"at most {_number(finding.high)}"
    if finding.high is None:
        return f"at least {_number(finding.low)}"
    return f"{_number(finding.low)} to {_number(finding.high)}"
