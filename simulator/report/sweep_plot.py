"""A sweep as a picture: every point that fits, and the front that no other point beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222")
"""Readable with the usual colour blindnesses (Tol's bright scheme)."""

MOST_COLOURS = len(PALETTE)


def sweep_figure(table: Sequence[Mapping[str, Any]], x: str, y: str, colour: str | None = None) -> Figure:
    """Scatter plot of two numbers over the rows of a sweep that fit; the Pareto front is joined.

    `colour` is a key whose values get colours, if there are not too many of them.
    """
    from simulator.report.picture import Picture

    fitting = [row for row in table if row.get("memory.fits") is True and _plotted(row, x, y)]
    figure = Picture(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for number, (label, rows) in enumerate(_groups(fitting, colour).items()):
        axes.scatter(
            [row[x] for row in rows],
            [row[y] for row in rows],
            s=14,
            color=PALETTE[number % MOST_COLOURS],
            label=label,
        )
    front = sorted((row for row in fitting if row.get("pareto")), key=lambda row: (row[x], row[y]))
    axes.plot([row[x] for row in front], [row[y] for row in front], color="0.3", linewidth=1.0, zorder=0)
    axes.scatter(
        [row[x] for row in front], [row[y] for row in front], s=60, facecolors="none", edgecolors="0.2"
    )
    axes.set(xlabel=x, ylabel=y)
    if colour is not None and len(fitting):
        axes.legend(title=colour, fontsize=8)
    return figure


def _plotted(row: Mapping[str, Any], x: str, y: str) -> bool:
    return all(
        isinstance(row.get(name), int | float) and not isinstance(row.get(name), bool) for name in (x, y)
    )


def _groups(rows: Sequence[Mapping[str, Any]], colour: str | None) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault("" if colour is None else str(row.get(colour)), []).append(row)
    return found if len(found) <= MOST_COLOURS else {"": list(rows)}


def svg(figure: Figure) -> bytes:
    """The picture as SVG, the same bytes for the same picture."""
    from io import BytesIO

    import matplotlib

    target = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "clustersim", "svg.fonttype": "none"}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()
