"""`clustersim calibrate fit collectives`: fit a collective calibration to measurements on board or one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.calibration.fit_collectives import Fit

BAD_INPUT = 2


def collectives(
    name: Annotated[str, typer.Argument(help="Calibration to start from, such as nccl-h100-nvswitch.")],
    leave_out_ranks: Annotated[
        int, typer.Option(help="Keep groups of this many ranks out of the fit and judge it on them.")
    ] = 0,
    results: Annotated[
        Path | None, typer.Option(help="Fit to this file of `calibrate run` instead; needs --cluster.")
    ] = None,
    cluster: Annotated[str, typer.Option(help="What --results were measured on.")] = "",
    gpus: Annotated[int | None, typer.Option(help="Its number of GPUs.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE of the cluster.")] = None,
    smallest: Annotated[str, typer.Option(help="Smallest message of --results to fit to.")] = "64 KiB",
    out: Annotated[Path | None, typer.Option(help="YAML file to write the fitted calibration to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Refine the parameters of NAME on the tune rows of its machines; print the errors on those and on held rows.

    With --results: on your own measurements, with the error on sizes that were left out of a second fit.
    """
    if results is not None:
        _fit_own(name, results, cluster, gpus, settings or [], smallest, out, as_json)
        return
    from simulator.calibration.collective_yaml import calibration_yaml
    from simulator.calibration.fit_collectives import fit_calibration
    from simulator.costs.collectives import load_calibration

    try:
        found = fit_calibration(load_calibration(name), leave_out_ranks or None)
    except ValueError as fault:
        typer.echo(f"clustersim: {fault}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    errors = report(found, leave_out_ranks)
    if as_json:
        typer.echo(json.dumps({"errors": errors, "hop_latency_s": found.hop_latencies}))
    else:
        for label, error in errors.items():
            typer.echo(
                f"{label:48s} {error['rows']:5d} rows  {error['mape']:6.1%}  bias {error['bias']:+6.1%}"
            )
        for system, latency in found.hop_latencies.items():
            typer.echo(f"{system:48s} network latency {latency * 1e6:.1f} us")
    if out is not None:
        out.write_text(calibration_yaml(found.calibration))


def _fit_own(
    name: str,
    path: Path,
    cluster: str,
    gpus: int | None,
    settings: list[str],
    smallest: str,
    out: Path | None,
    as_json: bool,
) -> None:
    import simulator
    from simulator.calibration.collective_yaml import calibration_yaml
    from simulator.calibration.measured_collectives import fit_own, measured_collectives
    from simulator.calibration.microbenchmarks.store import read_results
    from simulator.costs.collectives import load_calibration
    from simulator.description.quantities import BYTES, parse_quantity

    try:
        if not cluster:
            raise ValueError("--results needs --cluster: which machine was measured?")
        described = simulator.load_cluster(cluster, gpus, dict(text.partition("=")[::2] for text in settings))
        kept = read_results(path)
        rows = measured_collectives(kept, described, parse_quantity(smallest, BYTES))
        found = fit_own(load_calibration(name), rows, machine_text(kept.machine))
    except (ValueError, OSError) as fault:
        typer.echo(f"clustersim: {fault}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        typer.echo(json.dumps({"rows": found.rows, "mape": found.error, "holdout_mape": found.holdout}))
    else:
        typer.echo(f"{found.rows} rows  {found.error:.1%}  on sizes left out {found.holdout:.1%}")
    if out is not None:
        out.write_text(calibration_yaml(found.calibration))


def machine_text(machine: Mapping[str, Any]) -> str:
    """`gloo, torch 2.13.0, 8 ranks; minicluster: ...; AMD EPYC, 2 cores`."""
    where = machine.get("minicluster") or machine.get("gpu") or machine["device"]
    torch, nccl = machine.get("torch"), machine.get("nccl")
    software = [machine["backend"], f"torch {torch}" if torch else f"NCCL {nccl}" if nccl else ""]
    told = [", ".join(filter(None, [*software, f"{machine['num_ranks']} ranks"])), where]
    if "processor" in machine:
        told.append(f"{machine['processor']}, {machine['cores']} cores")
    return "; ".join(told)


def report(found: Fit, leave_out_ranks: int) -> dict[str, dict[str, Any]]:
    """`machine split` → rows, mean absolute and mean signed error; the ranks left out are a split of their own."""
    import numpy as np

    from simulator.calibration.fit_collectives import on_networks, residuals
    from simulator.validation.collective_data import measurements, systems

    names = [name for name, system in systems().items() if system.calibration == found.calibration.name]
    groups: dict[str, list[Any]] = {}
    for row in on_networks(measurements(names), found.hop_latencies):
        split = f"{leave_out_ranks} ranks" if row.group.num_ranks == leave_out_ranks else row.split
        groups.setdefault(f"{row.system} ({split})", []).append(row)
    errors = {}
    for label, rows in groups.items():
        error = np.expm1(residuals(found.calibration, rows))
        errors[label] = {"rows": len(rows), "mape": float(np.abs(error).mean()), "bias": float(error.mean())}
    return errors
