"""`clustersim check`: every fault of description files, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.description import catalogue
from simulator.description.faults import DescriptionError, Fault
from simulator.description.loading import load


def command(
    files: Annotated[list[str], typer.Argument(help="YAML files (or catalogue names).", metavar="FILE...")],
) -> None:
    """Check description files: each fault on a line of its own, exit code 2 if there is any."""
    faults: list[Fault] = []
    for file in files:
        try:
            for kind, path in catalogue.find_any(file):
                load(kind, str(path))
                typer.echo(f"{catalogue.display(Path(path))}: ok ({kind})")
        except DescriptionError as error:
            faults += error.faults
    if faults:
        raise DescriptionError(faults)
