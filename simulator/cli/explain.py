"""`clustersim explain`: from peak FLOP/s down to MFU, what limits the step, and what one change would gain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.parameters import AsJson, ClusterName, Gpus, Settings, WorkloadName


def command(
    cluster: ClusterName,
    workload: WorkloadName,
    gpus: Gpus = None,
    settings: Settings = None,
    as_json: AsJson = False,
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
