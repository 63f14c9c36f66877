"""From peak to MFU, what limits the step, and what one change would gain: as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from simulator.report import quantities as write
from simulator.report.items import indented
from simulator.report.summary import plan_line, title
from simulator.results.sensitivity import TIMES, gains

if TYPE_CHECKING:
    from simulator.results.explanation import Explanation
    from simulator.results.waterfall import Loss
    from simulator.sweeps.upgrades import Change

BAR = 30
SMALLEST = 5e-4
"""Shares of the step below this are not shown."""

PARTS = {
    "tensor_core": "the GPUs' matrix rate",
    "hbm": "the GPUs' memory bandwidth",
    "kernel_latency": "the fixed time of each kernel",
    "nvlink": "links inside nodes",
    "nic": "NICs",
    "host_link": "links to the hosts",
    "latency": "latencies of collectives",
    "launch": "the hosts' launches",
}


def explain_text(explanation: Explanation, width: int = 110) -> str:
    """What `clustersim explain` prints."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    prediction = explanation.prediction
    with console.capture() as capture:
        console.print(title(prediction))
        console.print(indented(plan_line(prediction)))
        console.print()
        console.print("From the GPUs' peak to what the model gets of it")
        console.print(_waterfall(explanation.losses, prediction.mfu))
        console.print()
        console.print(f"step time {write.seconds(prediction.step_time_s)}. {binding(explanation)}")
        console.print()
        console.print("What one change would gain (simulated)")
        console.print(_changes("of the hardware", explanation.hardware))
        console.print(_changes("of the plan", explanation.plan))
        console.print(_advice(explanation))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def binding(explanation: Explanation) -> str:
    """What limits the step most, in words."""
    gained = list(gains(explanation.prediction.sensitivity).items())
    if not gained:
        return "Nothing limits it."
    name, gain = gained[0]
    rest = ", ".join(f"{_part(other)} {amount:.2f} %" for other, amount in gained[1:4])
    better = "less" if name in TIMES else "more"
    said = f"It is limited by {_part(name)}: 1 % {better} would save {gain:.2f} % of it"
    return f"{said} ({rest})." if rest else f"{said}."


def _part(name: str) -> str:
    return PARTS.get(name, name.replace("_", " "))


def _waterfall(losses: Sequence[Loss], mfu: float) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(2):
        table.add_column(justify="right" if _ else "left")
    table.add_column()
    table.add_column()
    left = 1.0
    table.add_row("peak", write.percent(1.0), "█" * BAR, "")
    for loss in losses:
        if abs(loss.share) < SMALLEST:
            continue
        before, left = left, left - loss.share
        bar = " " * round(BAR * max(0.0, min(left, before))) + "█" * max(1, round(BAR * abs(loss.share)))
        table.add_row(f"- {loss.name}", write.percent(loss.share), bar, loss.meaning)
    table.add_row("= MFU", write.percent(mfu), "█" * round(BAR * mfu), "")
    return table


def _changes(of: str, changes: Sequence[Change]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for index, change in enumerate(changes):
        gain = f"{100 * change.gain:+.1f} %"
        table.add_row(f"  {of}" if index == 0 else "", change.name, write.seconds(change.step_time), gain)
    if not changes:
        table.add_row(f"  {of}", "none that runs and fits")
    return table


def _advice(explanation: Explanation) -> str:
    found = []
    for of, changes in (("plan", explanation.plan), ("hardware", explanation.hardware)):
        best = max(changes, key=lambda change: change.gain, default=None)
        if best is not None and best.gain > 0.0:
            found.append(f"next best change of {of}: {best.name} ({100 * best.gain:+.1f} %)")
    return "; ".join(found) or "no single change tried makes it faster"
