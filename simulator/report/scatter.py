"""Predicted against measured as a picture: one colour per source, the diagonal, and 10 % to either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.validation.scores import Row


def scatter_figure(by_source: Mapping[str, Sequence[Row]]) -> Figure:
    """Logarithmic scatter plot over all sources of one suite."""
    from simulator.report.picture import Picture

    figure = Picture(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    values = [v for rows in by_source.values() for row in rows for v in (row.measured, row.predicted)]
    low, high = min(values) / 1.3, max(values) * 1.3
    axes.fill_between(
        [low, high], [0.9 * low, 0.9 * high], [1.1 * low, 1.1 * high], color="0.9", label="within 10 %"
    )
    axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
    for source, rows in by_source.items():
        axes.scatter([r.measured for r in rows], [r.predicted for r in rows], s=9, label=source)
    unit = next((rows[0].unit for rows in by_source.values() if rows), "")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel=f"measured ({unit})", ylabel=f"predicted ({unit})")
    axes.legend(fontsize=8)
    return figure
