"""Parameters that commands share: what is predicted, and how the answer is printed."""

from __future__ import annotations

from typing import Annotated

import typer

ClusterName = Annotated[str, typer.Argument(help="Catalogue name or path (clustersim list clusters).")]
WorkloadName = Annotated[str, typer.Argument(help="Catalogue name or path (clustersim list workloads).")]
Gpus = Annotated[
    int | None, typer.Option(help="Build the cluster with this many; else what the job can use.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE: cluster.…, workload.…, model.… or plan.…; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")]
