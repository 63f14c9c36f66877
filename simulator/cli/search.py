"""`clustersim search`: the best plans that fit, with a proof that no other is better."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simulator.sweeps.search import Progress, SearchResult
    from simulator.sweeps.space import Space


def command(
    cluster: Annotated[str, typer.Argument(help="Catalogue name or path (clustersim list clusters).")],
    workload: Annotated[str, typer.Argument(help="Catalogue name or path (clustersim list workloads).")],
    gpus: Annotated[int | None, typer.Option(help="GPUs to use; all of the cluster if left out.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: cluster.…, workload.…, model.… or plan.…; may be repeated."),
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            help="plan.KEY=V1,V2,…: try only these values of a key, or also vary one that is fixed otherwise.",
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="step_time, tokens_per_dollar, tokens_per_joule or memory_headroom.")
    ] = "step_time",
    constraints: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", help="Such as mfu>=0.4, on any number of the prediction; may be repeated."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the best plans.")] = 5,
    most: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many simulations, and say what is not proven."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one per CPU if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the best plans. Degrees, schedule, chunks, micro-batch, ZeRO, recomputation and sequence parallelism vary;
    the workload's plan gives everything else. Exit code 1 if no plan fits."""
    from simulator.cli.main import DONE, FAILED
    from simulator.cli.run import load_both
    from simulator.sweeps.objectives import Constraint
    from simulator.sweeps.objectives import objective as named
    from simulator.sweeps.processes import LocalPool, available_jobs
    from simulator.sweeps.search import search

    whole, job = load_both(cluster, workload, gpus, settings or [])
    space = space_of(tries or [])
    processes = jobs or available_jobs()
    with _watched() as progress:
        result = search(
            whole,
            job,
            named(objective, whole),
            space=space,
            constraints=[Constraint.parse(text) for text in constraints or ()],
            top=top,
            most=most,
            pool=LocalPool(processes) if processes > 1 else None,
            progress=progress,
        )
    if as_json:
        import json

        typer.echo(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    else:
        _print(result)
    raise typer.Exit(DONE if result.best else FAILED)


def space_of(tries: Sequence[str]) -> Space:
    """`plan.tp=4,8` settings as a space. Raises KeyFaults for what is no key of a plan, or no value of it."""
    from simulator.description.faults import KeyFaults
    from simulator.description.yaml_reader import plain_scalar
    from simulator.sweeps.space import space_of_values

    values = {}
    for text in tries:
        key, equals, given = text.partition("=")
        if not equals:
            raise KeyFaults([("--try", f"{text!r} needs the form plan.KEY=V1,V2,…")])
        words = [part.strip() for part in given.split(",")]
        values[key.strip()] = [plain_scalar(word) if word else word for word in words]  # nothing is no value
    return space_of_values(values)


class _watched:
    """A line on a terminal that tells how far the search is; nothing in a pipe."""

    def __enter__(self) -> Progress:
        from simulator.sweeps.search import Progress

        if not sys.stderr.isatty():
            return Progress()
        from rich.console import Console
        from rich.status import Status

        self.status = Status("pricing plans …", console=Console(stderr=True))
        self.status.start()
        return Progress(self._say)

    def _say(self, simulated: int, best: float | None, bound: float) -> None:
        shown = "none fits yet" if best is None else f"best {best:.4g}, nothing left below {bound:.4g}"
        self.status.update(f"{simulated} plans simulated; {shown}")

    def __exit__(self, *error: object) -> None:
        if hasattr(self, "status"):
            self.status.stop()


def _print(result: SearchResult) -> None:
    from simulator.report.search_text import search_text

    sys.stdout.write(search_text(result))
