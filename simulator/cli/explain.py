"""`clustersim explain`: from peak FLOP/s down to MFU, what limits the step, and what one change would gain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    cluster: Annotated[str, typer.Argument(help="Catalogue name or path (clustersim list clusters).")],
    workload: Annotated[str, typer.Argument(help="Catalogue name or path (clustersim list workloads).")],
    gpus: Annotated[
        int | None, typer.Option(help="Build the cluster with this many; else what the job can use.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: cluster.…, workload.…, model.… or plan.…; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the waterfall here (SVG).")] = None,
) -> None:
    """Say where the FLOP/s go, what limits the step, and the best single change of plan and of hardware."""
    from simulator.cli.run import load_both
    from simulator.results.explanation import explain
    from simulator.workloads.job_size import for_job

    whole, job = load_both(cluster, workload, gpus, settings or [])
    explanation = explain(whole if gpus is not None else for_job(whole, job), job)
    if plot is not None:
        from simulator.report.sweep_plot import svg
        from simulator.report.waterfall_plot import waterfall_figure

        plot.write_bytes(svg(waterfall_figure(explanation.losses, explanation.prediction.mfu)))
    if as_json:
        import json

        typer.echo(json.dumps(explanation.to_dict(), indent=2, allow_nan=False))
        return
    from simulator.report.explain_text import explain_text

    text = explain_text(explanation)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
