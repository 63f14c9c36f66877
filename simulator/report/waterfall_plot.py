"""From peak FLOP/s down to MFU as a picture: one bar per loss, hanging from where the one before ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.report.colours import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.results.waterfall import Loss

OWN = {"kernel efficiency": "#4477aa", "memory-bound operators": "#99bbdd", "imbalance": "#dddddd"}
SMALLEST = 5e-4


def waterfall_figure(losses: Sequence[Loss], mfu: float) -> Figure:
    """Bars in percent of the GPUs' peak."""
    from simulator.report.picture import Picture

    shown = [loss for loss in losses if abs(loss.share) >= SMALLEST]
    figure = Picture(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    names, left = ["peak"], 1.0
    axes.bar([0], [100.0], color="0.3")
    for place, loss in enumerate(shown, start=1):
        left -= loss.share
        axes.bar(
            [place],
            [100.0 * loss.share],
            bottom=[100.0 * left],
            color=OWN.get(loss.name) or COLOURS[loss.name],
        )
        axes.annotate(
            f"{100.0 * loss.share:.1f}",
            (place, 100.0 * max(left, left + loss.share)),
            ha="center",
            va="bottom",
        )
        names.append(loss.name)
    axes.bar([len(names)], [100.0 * mfu], color="#228833")
    axes.annotate(f"{100.0 * mfu:.1f}", (len(names), 100.0 * mfu), ha="center", va="bottom")
    axes.set_xticks(range(len(names) + 1), [*names, "MFU"], rotation=40, ha="right")
    axes.set(ylabel="% of peak FLOP/s", ylim=(0.0, 108.0))
    return figure
