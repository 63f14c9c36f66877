"""`clustersim run`: predict one training step of a workload on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.parameters import AsJson, ClusterName, Gpus, Settings, WorkloadName

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.results.prediction import Prediction
    from simulator.workloads.workload import Workload


def command(
    cluster: ClusterName,
    workload: WorkloadName,
    gpus: Gpus = None,
    settings: Settings = None,
    as_json: AsJson = False,
    trace: Annotated[Path | None, typer.Option(help="Write a timeline for ui.perfetto.dev here.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page (one HTML file) here.")] = None,
) -> None:
    """Predict one training step. Exit code 1 if it does not fit in memory."""
    from simulator.cli.main import DONE, FAILED
    from simulator.simulation import SimulationOptions, simulate
    from simulator.workloads.job_size import for_job

    _check_targets({"--trace": trace, "--report": report})
    whole, job = load_both(cluster, workload, gpus, settings or [])
    used = whole if gpus is not None else for_job(whole, job)
    prediction = simulate(used, job, SimulationOptions(trace=trace is not None))
    if trace is not None:
        from simulator.exporters.chrome_trace import write_trace

        write_trace(prediction, trace)
    if report is not None:
        from simulator.report.html import html_report

        report.write_text(html_report(prediction), encoding="utf-8")
    if as_json:
        typer.echo(as_text(prediction))
    else:
        _print(prediction, whole.num_gpus)
    raise typer.Exit(DONE if prediction.memory.fits else FAILED)


def load_both(cluster: str, workload: str, gpus: int | None, settings: list[str]) -> tuple[Cluster, Workload]:
    """The cluster and the workload with the settings laid over them.

    Raises DescriptionError with the faults of both.
    """
    import simulator
    from simulator.description.faults import DescriptionError
    from simulator.description.overrides import split_settings

    for_cluster, for_workload = split_settings(settings)
    faults = []
    try:
        described = simulator.load_cluster(cluster, gpus, for_cluster)
    except DescriptionError as error:
        faults += error.faults
    try:
        job = simulator.load_workload(workload, for_workload)
    except DescriptionError as error:
        faults += error.faults
    if faults:
        raise DescriptionError(faults)
    return described, job


def as_text(prediction: Prediction) -> str:
    """The object of `--json`; a plan that does not fit also gets `memory.remedies`."""
    import json

    tree: dict[str, Any] = prediction.to_dict()
    if not prediction.memory.fits:
        tree["memory"]["remedies"] = [remedy.to_dict() for remedy in prediction.remedies]
    return json.dumps(tree, indent=2, allow_nan=False)


def _print(prediction: Prediction, available: int) -> None:
    """Colours and the terminal's width on a terminal, plain and wide enough in a pipe."""
    from rich.console import Console

    from simulator.report.text import plain, report

    if sys.stdout.isatty():
        Console(highlight=False).print(report(prediction, available))
        return
    text = plain(prediction, available)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def _check_targets(targets: dict[str, Path | None]) -> None:
    """Files to be written must be in folders that exist: said before a long run, not after."""
    from simulator.description.faults import DescriptionError, Place, fault_at

    faults = []
    for option, path in targets.items():
        if path is None:
            continue
        place = Place(f"{option} {path}")
        if path.is_dir():
            faults.append(fault_at(place, option, "is a folder; name a file in it"))
        elif not path.parent.is_dir():
            faults.append(fault_at(place, option, f"there is no folder {path.parent}"))
    if faults:
        raise DescriptionError(faults)
