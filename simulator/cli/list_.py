"""`clustersim list`: which descriptions are in the catalogue."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from simulator.description import catalogue
from simulator.description.faults import DescriptionError, Place, fault_at, shown, suggestion
from simulator.description.kinds import KINDS

HALVES = ("hardware", "workloads")


def command(
    what: Annotated[
        str, typer.Argument(help="hardware, workloads, or one kind such as gpu or plan; all if left out.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: kind to names.")] = False,
) -> None:
    """List the names in the catalogue, by kind."""
    found = {kind: catalogue.entries(kind) for kind in chosen_kinds(what)}
    if as_json:
        import json

        typer.echo(json.dumps({kind: list(files) for kind, files in found.items()}, indent=2))
        return
    for kind, files in found.items():
        if files:
            typer.echo(f"{kind}  ({KINDS[kind].what})")
            width = max(map(len, files))
            for name, path in files.items():
                typer.echo(f"  {name:{width}}  {summary(path)}".rstrip())


def chosen_kinds(what: str) -> list[str]:
    """The kinds that `what` asks for. Raises DescriptionError for an unknown word."""
    if not what:
        return list(KINDS)
    if what in HALVES:
        return [name for name, kind in KINDS.items() if kind.folder.startswith(what + "/")]
    singular = what.removesuffix("s") if what not in KINDS else what
    if singular in KINDS:
        return [singular]
    known = [*HALVES, *KINDS]
    hint = suggestion(what, known) or f" (known: {', '.join(known)})"
    place = Place("clustersim list")
    raise DescriptionError([fault_at(place, shown(what), f"is no kind of description{hint}")])


def summary(path: Path) -> str:
    """What a file says it is: its first line, if that is a comment, or its `description`."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = list(islice(file, 5))
    except (OSError, UnicodeDecodeError):
        return ""
    if lines and lines[0].startswith("#"):
        return lines[0].strip("# \n")
    said = (line.partition(":")[2].strip(" \"'\n") for line in lines if line.startswith("description:"))
    return next(said, "")
