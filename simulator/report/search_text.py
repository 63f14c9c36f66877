"""The best plans of a search as a table, and what proves that they are the best."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from simulator.report import quantities as write
from simulator.report.summary import plan_line, title

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction
    from simulator.sweeps.search import Certificate, SearchResult


def search_text(result: SearchResult, width: int = 110) -> str:
    """What `clustersim search` prints."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        if result.best:
            console.print(f"{title(result.best[0])}: best plans by {result.objective.replace('_', ' ')}")
            console.print(_table(result.best))
            for number, prediction in enumerate(result.best, start=1):
                console.print(f"{number:>3}  {plan_line(prediction)}")
                console.print(f"     {settings(prediction)}")
            for line in _narrow(result.best):
                console.print(line)
        else:
            console.print("no plan fits")
        console.print()
        for line in proof(result.certificate, result.objective):
            console.print(line)
        console.print(f"{result.wall_s:.1f} s")
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def settings(prediction: Prediction) -> str:
    """The plan as settings to type after `clustersim run CLUSTER WORKLOAD`."""
    plan = prediction.workload.plan
    keys = ("tp", "pp", "vpp", "cp", "ep", "zero", "micro_batch", "sequence_parallel", "recompute")
    parts = [f"--set plan.{key}={_typed(getattr(plan, key))}" for key in keys]
    if plan.pp > 1:
        parts.append(f"--set plan.schedule={plan.schedule_name}")
    if plan.layers_per_stage is not None:
        split = plan.layers_per_stage
        parts.append(f"--set plan.layers_per_stage='{split if isinstance(split, str) else list(split)}'")
    return " ".join(parts)


def proof(certificate: Certificate, objective: str) -> list[str]:
    """The certificate in words."""
    infeasible = sum(certificate.infeasible.values())
    reasons = ", ".join(
        f"{name.replace('_', ' ') if name.isidentifier() else name} {count:,}"
        for name, count in certificate.infeasible.items()
    )
    lines = [
        f"{certificate.plans:,} plans: {infeasible:,} cannot run as asked ({reasons}),",
        f"  {certificate.pruned - certificate.open:,} cannot be better by their bound, "
        f"{certificate.simulated:,} were simulated.",
    ]
    if certificate.open:
        lines.append(f"  Not proven: {certificate.open:,} that may be better were not tried.")
    if certificate.refused:
        refused = ", ".join(f"{name} {count:,}" for name, count in certificate.refused.items())
        lines.append(f"  Of those simulated, refused: {refused}.")
    if certificate.best_pruned_bound_s is not None and objective == "step_time":
        which = "plan that was not simulated" if certificate.open else "pruned plan"
        lines.append(f"  No {which} can take less than {write.seconds(certificate.best_pruned_bound_s)}.")
    return lines


def _table(best: tuple[Prediction, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "step", "MFU", "tokens/s", "memory", "$ per step", "energy"):
        table.add_column(name, justify="right")
    for number, one in enumerate(best, start=1):
        rate = one.tokens_per_s if one.tokens_per_s is not None else one.samples_per_s
        table.add_row(
            str(number),
            write.seconds(one.step_time_s),
            write.percent(one.mfu),
            write.number(rate),
            f"{one.memory.peak_bytes / 2**30:.1f} of {one.memory.capacity_bytes / 2**30:.1f} GiB"
            + (" ?" if one.memory.may_not_fit else "  "),
            "" if one.cost_usd is None else f"{one.cost_usd:.3g}",
            "" if one.energy_j is None else write.energy(one.energy_j),
        )
    return table


def _narrow(best: tuple[Prediction, ...]) -> list[str]:
    """What `?` means, and how to do without."""
    narrow = [one.memory for one in best if one.memory.may_not_fit]
    if not narrow:
        return []
    most, capacity = narrow[0].factors[1], narrow[0].capacity_bytes / 2**30
    return [
        f"  ? may not fit: measured peaks go up to {most:.2f} times the predicted ones; leave such plans out with",
        f"    --constraint 'memory.peak_high_bytes<={capacity:.1f} GiB'",
    ]


def _typed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
