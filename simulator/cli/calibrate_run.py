"""`clustersim calibrate run`: measure this machine, a GPU cluster under torchrun, or a minicluster."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simulator.calibration.minicluster.launch import Job

BAD_INPUT = 2


def run(
    out: Annotated[Path, typer.Option(help="Results file (JSON lines); an existing one is continued.")],
    only: Annotated[str, typer.Option(help="Benchmarks, such as gemm,collective; all if left out.")] = "",
    smallest: Annotated[str, typer.Option(help="Smallest message.")] = "4 KiB",
    largest: Annotated[str, typer.Option(help="Largest message.")] = "64 MiB",
    quick: Annotated[
        bool, typer.Option("--quick", help="Few sizes, few repeats: does everything work?")
    ] = False,
    stagger: Annotated[
        str, typer.Option(help="Time between ranks that enter an all-gather or all-to-all.")
    ] = "0 s",
    device: Annotated[str, typer.Option(help="cpu or cuda; cuda wherever there is a GPU if left out.")] = "",
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Run ahead of other processes where that is allowed.")
    ] = False,
    minicluster: Annotated[str, typer.Option(help="Measure on this minicluster, which is up already.")] = "",
) -> None:
    """Measure kernels, copies, collectives, their concurrency and overlap through torch.distributed.

    Under torchrun (or `minicluster exec`) every rank runs this. Alone it measures one rank: kernels and
    copies.
    """
    from simulator.calibration.microbenchmarks.session import QUICK, THOROUGH, run_session
    from simulator.description.quantities import BYTES, SECONDS, parse_quantity

    try:
        sizes = {
            "smallest": int(parse_quantity(smallest, BYTES)),
            "largest": int(parse_quantity(largest, BYTES)),
        }
        late = parse_quantity(stagger, SECONDS)
        names = [name.strip() for name in only.split(",")] if only else None
        if minicluster:
            raise typer.Exit(_run_on(minicluster, out, names, sizes, quick, real_time, late))
        with _progress_bar(shown=os.environ.get("RANK", "0") == "0") as tell:
            measured = run_session(
                out,
                names=names,
                quick=quick,
                stagger=late,
                device=device or None,
                effort=QUICK if quick else THOROUGH,
                real_time=real_time,
                progress=tell,
                **sizes,
            )
    except (ValueError, LookupError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None
    if os.environ.get("RANK", "0") == "0":
        typer.echo(f"{out}: {measured} cases measured")


def _run_on(
    name: str,
    out: Path,
    names: list[str] | None,
    sizes: dict[str, int],
    quick: bool,
    real_time: bool,
    stagger: float,
) -> int:
    """Start this command on every node of the minicluster; returns its exit code."""
    from simulator.calibration.microbenchmarks.benchmark import Scope, cases_of
    from simulator.calibration.minicluster import state
    from simulator.calibration.minicluster.launch import Job, terminated_like_interrupted

    nodes = state.read(name)
    total = len(cases_of(Scope("cpu", len(nodes.hosts), quick=quick, **sizes), names))
    command = [sys.executable, "-m", "simulator.calibration", "--out", str(out.absolute()), "--device", "cpu"]
    command += ["--smallest", f"{sizes['smallest']} B", "--largest", f"{sizes['largest']} B"]
    command += ["--only", ",".join(names)] if names else []
    command += ["--quick"] if quick else []
    command += ["--real-time"] if real_time else []
    command += ["--stagger", f"{stagger:g} s"] if stagger else []
    with terminated_like_interrupted(), _progress_bar(shown=True) as tell:
        job = Job(nodes, command)
        watcher = threading.Thread(target=_watch, args=(out, total, job, tell), daemon=True)
        watcher.start()
        outcome = job.wait()
    failed = outcome.code != 0
    typer.echo(outcome.outputs[0 if not failed else outcome.first_failed].rstrip(), err=failed)
    return max(outcome.code, 0) if outcome.code >= 0 else 1


def _watch(out: Path, total: int, job: Job, tell: Callable[[int, int], None]) -> None:
    """Tell how many cases the results file holds while the job runs: its ranks write to no terminal."""
    while job.running:
        with contextlib.suppress(OSError), out.open("rb") as results:
            tell(max(0, sum(1 for _ in results) - 1), total)
        time.sleep(0.5)


@contextlib.contextmanager
def _progress_bar(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """What to tell (done, in all) to; a bar on a terminal, nothing in a pipe."""
    if not (shown and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def main() -> None:
    """Entry of `python -m simulator.calibration`."""
    typer.run(run)
