"""`clustersim schema`: the JSON Schema of a kind of description, for editors and other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.description.faults import DescriptionError, Place, fault_at, shown, suggestion
from simulator.description.kinds import KINDS


def command(
    kind: Annotated[str, typer.Argument(help="gpu, nic, node, fabric, cluster, model, plan, workload, ...")],
) -> None:
    """Print the JSON Schema of a kind of description."""
    import json

    from simulator.description.json_schema import json_schema

    known = [name for name, entry in KINDS.items() if entry.read_by]
    if kind not in known:
        hint = suggestion(kind, known) or f" (known: {', '.join(known)})"
        raise DescriptionError([fault_at(Place("clustersim schema"), shown(kind), f"has no schema{hint}")])
    typer.echo(json.dumps(json_schema(kind), indent=2))
