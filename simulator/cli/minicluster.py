"""`clustersim minicluster`: build, use and remove a real cluster of network namespaces on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

BAD_INPUT = 2

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=__doc__)

Name = Annotated[str, typer.Argument(help="The minicluster's name, as `up` printed it.")]


@app.command()
def up(
    cluster: Annotated[str, typer.Argument(help="Catalogue name or path of a cluster description.")],
    name: Annotated[str, typer.Option(help="Its name; the description's name if left out.")] = "",
    gpus: Annotated[int | None, typer.Option(help="Number of nodes (a node is one rank).")] = None,
    shaper: Annotated[
        str, typer.Option(help="fair: fair-queueing ports; fifo: token bucket and one queue.")
    ] = "fair",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key, such as node.nic.bandwidth='200 Mb/s'.")
    ] = None,
) -> None:
    """Build the described cluster out of network namespaces and shaped links."""
    from simulator import load_cluster
    from simulator.calibration.minicluster import lifecycle

    with _faults_on_standard_error():
        overrides = dict(setting.partition("=")[::2] for setting in settings or [])
        described = load_cluster(cluster, gpus, overrides)
        made = lifecycle.up(name or _name_from(cluster), described, described_by=cluster, shaper=shaper)
    typer.echo(f"{made.name}: {len(made.hosts)} nodes up; clustersim minicluster exec {made.name} -- COMMAND")


@app.command()
def down(
    name: Annotated[str, typer.Argument(help="The minicluster's name.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every minicluster on this machine.")] = False,
) -> None:
    """End its processes and remove every namespace; harmless if there is nothing (left) to remove."""
    from simulator.calibration.minicluster import lifecycle

    with _faults_on_standard_error():
        if bool(name) == everything:
            raise ValueError("give a name, or --all")
        removed = lifecycle.down_all() if everything else [name] if lifecycle.down(name) else []
    typer.echo("\n".join(f"{gone}: down" for gone in removed) or "nothing was up")


@app.command(context_settings={"ignore_unknown_options": True})
def exec(
    name: Name,
    command: Annotated[list[str], typer.Argument(help="Command and arguments, after `--`.")],
    nodes: Annotated[str, typer.Option(help="Nodes to run on, such as 0,2,3; rank r runs on the r-th.")] = "",
) -> None:
    """Run COMMAND as one process per node, with the environment that torchrun would give it."""
    from simulator.calibration.minicluster import state
    from simulator.calibration.minicluster.launch import run_job

    with _faults_on_standard_error():
        hosts = [int(node) for node in nodes.split(",")] if nodes else None
        outcome = run_job(state.read(name), command, hosts=hosts, echo=sys.stdout)
    raise typer.Exit(outcome.code if outcome.code >= 0 else 128 - outcome.code)


@app.command()
def status(name: Annotated[str, typer.Argument(help="One minicluster; all if left out.")] = "") -> None:
    """Say which miniclusters are up, and the address and rate of every node."""
    from simulator.calibration.minicluster import state

    with _faults_on_standard_error():
        found = [state.read(one) for one in ([name] if name else state.names())]
    for minicluster in found:
        switches = ", ".join(minicluster.switches)
        typer.echo(
            f"{minicluster.name}: {minicluster.cluster}, {minicluster.shaper} ports, switches {switches}"
        )
        for host in minicluster.hosts:
            typer.echo(f"  {host.name}  {host.address}  {host.rate * 8 / 1e6:g} Mb/s")
    if not found:
        typer.echo("no minicluster is up")


@contextmanager
def _faults_on_standard_error() -> Iterator[None]:
    """Expected failures become one line and exit code 2, without a traceback."""
    from simulator.calibration.minicluster.commands import CommandError
    from simulator.calibration.minicluster.launch import terminated_like_interrupted
    from simulator.calibration.minicluster.lifecycle import AlreadyUp
    from simulator.calibration.minicluster.privileges import NotPossible
    from simulator.calibration.minicluster.state import UnknownMinicluster
    from simulator.description.faults import DescriptionError

    expected = (CommandError, AlreadyUp, NotPossible, UnknownMinicluster, DescriptionError, ValueError)
    try:
        with terminated_like_interrupted():
            yield
    except expected as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None


def _name_from(cluster: str) -> str:
    """A minicluster name from a catalogue name or a path."""
    return Path(cluster).stem.lower().replace("_", "-").replace(".", "-")[:32].strip("-")
