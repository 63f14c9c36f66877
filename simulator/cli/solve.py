"""`clustersim solve`: which value of one number makes a prediction meet a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.parameters import AsJson, ClusterName, Gpus, Settings, WorkloadName

if TYPE_CHECKING:
    from simulator.sweeps.changes import Design
    from simulator.sweeps.solve import Solution


def command(
    cluster: ClusterName,
    workload: WorkloadName,
    vary: Annotated[str, typer.Option(help="What may change: cluster.node.nic.bandwidth, gpus, …")],
    until: Annotated[str, typer.Option(help="What is to hold: mfu>=0.45, step_time_s<=10, days<=30, …")],
    between: Annotated[
        str | None, typer.Option(help="LOW,HIGH, such as 100 Gb/s,3.2 Tb/s; 1/64 to 64 times if left out.")
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens to train on, which defines days.")] = None,
    gpus: Gpus = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Find where a condition begins to hold. Exit code 1 if it holds nowhere in the range."""
    from simulator.cli.main import DONE, FAILED
    from simulator.cli.run import load_both
    from simulator.sweeps.changes import Design
    from simulator.sweeps.objectives import Constraint
    from simulator.sweeps.solve import solve
    from simulator.workloads.job_size import for_job

    whole, job = load_both(cluster, workload, gpus, settings or [])
    used = whole if gpus is not None or vary == "gpus" else for_job(whole, job)
    low, high = (None, None) if between is None else _range(between)
    condition = Constraint.parse(until, "--until")
    solution = solve(Design(used, job), vary, condition, low, high, tokens=tokens)
    if as_json:
        import json

        typer.echo(json.dumps(solution.to_dict(), indent=2, allow_nan=False))
    else:
        typer.echo(told(solution, Design(used, job)))
    raise typer.Exit(DONE if solution.holds else FAILED)


def _range(text: str) -> tuple[float, float]:
    from simulator.description.faults import KeyFaults
    from simulator.sweeps.objectives import parse_number

    low, comma, high = text.partition(",")
    if not comma:
        raise KeyFaults([("--between", f"{text!r} needs the form LOW,HIGH")])
    return parse_number(low.strip(), "--between", text), parse_number(high.strip(), "--between", text)


def told(solution: Solution, design: Design) -> str:
    """The solution in words, with what was sampled."""

    def written(value: float) -> str:
        return design.written(solution.key, value)

    lines = []
    if not solution.holds:
        lines.append(f"{solution.condition} holds for no {solution.key} that was tried")
    for low, high in solution.holds:
        lines.append(f"{solution.condition} holds for {solution.key} from {written(low)} to {written(high)}")
    if not solution.monotone:
        lines.append(
            "The answer is not monotone in this range: between the values sampled there may be other crossings."
        )
    lines.append("")
    key = solution.condition.rstrip("0123456789.e+-").rstrip("<>=")
    lines += [
        f"  {design.written(solution.key, sample.value, digits=4):>16}  {key} "
        + ("cannot run" if sample.answer is None else f"{sample.answer:.6g}")
        for sample in solution.samples
    ]
    return "\n".join(lines)
