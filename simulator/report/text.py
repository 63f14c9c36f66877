"""One prediction as a table that a person reads in ten seconds."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from simulator.report import quantities as write
from simulator.report import summary
from simulator.report.colours import COLOURS
from simulator.report.items import Items, indented

if TYPE_CHECKING:
    from simulator.results.memory import ClassMemory
    from simulator.results.prediction import Prediction

BAR = 30
MOST_STAGES = 8
"""Rows of the memory table; of a longer pipeline the fullest, first and last stages are shown."""


def report(prediction: Prediction, available: int | None = None) -> Group:
    """What `clustersim run` prints; `available` GPUs has the cluster in all."""
    parts: list[RenderableType] = [
        Text(summary.title(prediction, available), style="bold"),
        indented(summary.plan_line(prediction)),
        *(indented(line) for line in _remarks(prediction) if line),
        "",
        _headline(prediction),
        "",
        Text(f"Where the time goes ({summary.critical_name(prediction)}, the busiest)", style="bold"),
        _breakdown(prediction),
        "",
        Text("Memory  ", style="bold").append(_verdict(prediction)),
        _memory(prediction),
        *_remedies(prediction),
        "",
        _lines(prediction),
    ]
    return Group(*parts)


def plain(prediction: Prediction, available: int | None = None, width: int = 110) -> str:
    """The report without colours."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(report(prediction, available))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _remarks(prediction: Prediction) -> tuple[str | None, ...]:
    return summary.unsharding_line(prediction), summary.data_line(prediction)


def _headline(prediction: Prediction) -> Table:
    table = _grid()
    for what, value, remark in summary.headline(prediction):
        table.add_row(Text(what), Text(value, style="bold"), Text(remark, style="dim"))
    return table


def _breakdown(prediction: Prediction) -> Table:
    table = _grid()
    found = summary.shares(prediction)
    longest = max((part.share for part in found), default=1.0)
    for part in found:
        bar = "█" * max(1, round(BAR * part.share / longest)) if part.share >= 0.001 else "▏"
        table.add_row(
            Text(part.kind),
            Text(write.seconds(part.seconds), justify="right"),
            Text(write.percent(part.share), justify="right"),
            Text(bar, style=COLOURS.get(part.kind, "")),
        )
    return table


def _verdict(prediction: Prediction) -> Text:
    return Text(summary.memory_line(prediction), style="" if prediction.memory.fits else "bold red")


def _memory(prediction: Prediction) -> Table:
    """Per stage: peak and what is alive at it, in GiB."""
    kinds = summary.memory_kinds(prediction)
    table = _grid()
    stages = _shown(prediction.memory.by_stage())
    table.add_row(*[Text(head, style="dim", justify="right") for head in ("stage", "peak GiB", *kinds)])
    for stage in stages:
        amounts = [_gib(stage.by_kind.get(kind, 0.0)) for kind in kinds]
        style = "" if stage.share <= 1.0 else "red"
        row = [str(stage.stage), _gib(stage.peak_bytes), *amounts]
        table.add_row(*[Text(cell, style=style, justify="right") for cell in row])
    return table


def _shown(stages: list[ClassMemory]) -> list[ClassMemory]:
    """All stages, or the first, the last and the fullest ones."""
    if len(stages) <= MOST_STAGES:
        return stages
    fullest = sorted(stages[1:-1], key=lambda stage: (-stage.share, stage.stage))[: MOST_STAGES - 2]
    return sorted([stages[0], *fullest, stages[-1]], key=lambda stage: stage.stage)


def _remedies(prediction: Prediction) -> list[RenderableType]:
    from simulator.results.remedies import MOST_CHANGES, needed_gpus

    if prediction.memory.fits:
        return []
    if prediction.remedies:
        table = _grid()
        for remedy in prediction.remedies:
            against = remedy.step_time_s / prediction.step_time_s - 1.0
            table.add_row(
                Text(remedy.command),
                Text(write.size(remedy.peak_bytes), justify="right"),
                Text(f"step {write.seconds(remedy.step_time_s)} ({write.change(against)})"),
            )
        return ["", Text("What would fit (tried, fastest first)", style="bold"), table]
    needed = needed_gpus(prediction.cluster, prediction.workload)
    if needed > prediction.gpus:
        message = f"Parameters, gradients and optimizer state alone need {needed:,} GPUs of this memory."
    else:
        message = f"No combination of up to {MOST_CHANGES} changes of the plan that were tried fits."
    return ["", Text(message, style="bold")]


def _lines(prediction: Prediction) -> Table:
    """Utilisation, critical path, and where the numbers come from."""
    table = _grid()
    table.add_row(Text("in use"), Items(summary.utilization_line(prediction)))
    table.add_row(Text("critical path"), Items(summary.critical_line(prediction)))
    table.add_row(Text("limited by"), Items(summary.limits_line(prediction)))
    table.add_row(Text("numbers from"), Items(summary.origins_line(prediction)))
    for warning in prediction.warnings:
        table.add_row(Text("note", style="yellow"), Text(warning, style="yellow"))
    for warning in summary.borrowed(prediction):
        table.add_row(Text("borrowed", style="yellow"), Text(warning, style="yellow"))
    engine = prediction.meta["engine"]
    classes = len(prediction.built.program.members)
    ranks = f"{engine['folded_from']:,} ranks folded into {classes:,} class{'es' if classes > 1 else ''}"
    table.add_row(Text("simulated"), Text(f"{ranks}, {engine['tasks']:,} tasks in {engine['wall_s']:.2f} s"))
    return table


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0), pad_edge=False)


def _gib(amount: float) -> str:
    return f"{amount / 2**30:.1f}" if amount else "-"
