"""The counterparts of a study's published figures: ours drawn beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.studies.expression import Layered
from simulator.studies.outcome import Outcome, evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simulator.studies.study import Plot, Series


def write_plots(outcome: Outcome, folder: Path) -> list[Path]:
    """One PNG per plot, named after the study."""
    written = []
    for index, plot in enumerate(outcome.study.plots):
        suffix = f"-{index + 1}" if len(outcome.study.plots) > 1 else ""
        path = folder / f"{outcome.study.name}{suffix}.png"
        figure_of(outcome, index, plot).savefig(path, dpi=150)
        written.append(path)
    return written


def figure_of(outcome: Outcome, index: int, plot: Plot) -> Figure:
    """Ours filled (or drawn through), theirs hollow (or as points), in one colour per series."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for number, series in enumerate(plot.series):
        key = f"plots.{index}.series.{number}"
        values = {
            "ours": _along(outcome, f"{key}.ours", series.ours, plot),
            "published": _along(outcome, f"{key}.published", series.published, plot),
        }
        draw = _draw_lines if plot.kind == "lines" else _draw_bars
        draw(axes, plot, number, series, values)
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    if "x" in plot.log:
        axes.set_xscale("log", base=2)
    if "y" in plot.log:
        axes.set_yscale("log")
    axes.legend(fontsize="small")
    return figure


def _along(outcome: Outcome, key: str, written: Any, plot: Plot) -> list[float] | None:
    if written is None or isinstance(written, list):
        return written
    return [float(evaluate(outcome.study, key, written, Layered({"x": x}, outcome.names))) for x in plot.x]


def _draw_lines(
    axes: Axes, plot: Plot, number: int, series: Series, values: dict[str, list[float] | None]
) -> None:
    colour = f"C{number}"
    if values["ours"] is not None:
        axes.plot(plot.x, values["ours"], color=colour, label=series.label)
    if values["published"] is not None:
        axes.plot(
            plot.x,
            values["published"],
            "o",
            color=colour,
            fillstyle="none",
            label=f"{series.label}, published",
        )


def _draw_bars(
    axes: Axes, plot: Plot, number: int, series: Series, values: dict[str, list[float] | None]
) -> None:
    count = 2 * len(plot.series) + 1
    colour = f"C{number}"
    for place, (name, heights) in enumerate(values.items()):
        if heights is None:
            continue
        left = [x + (2 * number + place - len(plot.series) + 0.5) / count for x in range(len(plot.x))]
        style: dict[str, Any] = (
            {"color": colour} if name == "ours" else {"edgecolor": colour, "facecolor": "none", "hatch": "//"}
        )
        label = series.label if name == "ours" else f"{series.label}, published"
        axes.bar(left, heights, width=1 / count, label=label, **style)
    axes.set_xticks(range(len(plot.x)), [str(x) for x in plot.x])
