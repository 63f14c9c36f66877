"""`clustersim calibrate fit kernels`: fit how a GPU runs kernels, to one's own or to the shipped measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simulator.costs.kernels import KernelCalibration

BAD_INPUT = 2


def kernels(
    gpu: Annotated[str, typer.Option(help="GPU of the catalogue, or a path.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Results of `calibrate run`; the measurements on board if left out."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="YAML file to write the calibration to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit GEMMs, attention and memory-bound operators of one GPU; print the errors of every part.

    With --data, what was measured is fitted and the rest comes from the GPU's present calibration. Without it,
    the shipped calibration is made again (about a minute), and judged on shapes kept from the fits.
    """
    from simulator.calibration.kernel_yaml import calibration_yaml

    try:
        found = _fitted(gpu, data)
    except (ValueError, OSError) as fault:
        typer.echo(f"clustersim: {fault}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        fits = {part: fit.model_dump() for part, fit in found.fits.items()}
        typer.echo(json.dumps({"gpu": found.gpu, "fits": fits}, indent=2))
    else:
        _print(found)
    if out is not None:
        out.write_text(calibration_yaml(found))


def _fitted(name: str, data: Path | None) -> KernelCalibration:
    from simulator.calibration import fit_kernels, fit_measured
    from simulator.costs.kernels import calibration_for, load_calibration
    from simulator.description import load

    gpu = load("gpu", name)
    if data is not None:
        return fit_measured.refit(data, gpu, calibration_for(gpu))
    if gpu.name not in fit_kernels.RECIPES:
        known = ", ".join(fit_kernels.RECIPES)
        raise ValueError(f"no measurements of {name!r} on board (of {known}); give your own with --data")
    lender = fit_kernels.RECIPES[gpu.name].lender
    return fit_kernels.calibrate(gpu, load_calibration(lender) if lender else None)


def _print(found: KernelCalibration) -> None:
    for part, fit in found.fits.items():
        held = "".join(f"  {name} {error:.1%}" for name, error in fit.holdout.items())
        typer.echo(
            f"{part:20s} {fit.rows:6d} rows  {fit.error:6.1%}" + (f"  kept out:{held}" if held else "")
        )
