"""`clustersim calibrate`: measure (`run`), and turn measurements into calibration files (`fit`)."""

from __future__ import annotations

import typer

from simulator.cli import calibrate_collectives, calibrate_kernels, calibrate_run

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=__doc__)


@app.callback()
def calibrate() -> None:
    """Measure this machine and fit what the cost models need."""


app.command("run")(calibrate_run.run)

fit = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Fit calibrations to measurements.",
)
app.add_typer(fit, name="fit")


@fit.callback()
def fits() -> None:
    """Fit calibrations to measurements."""


fit.command("collectives")(calibrate_collectives.collectives)
fit.command("kernels")(calibrate_kernels.kernels)
