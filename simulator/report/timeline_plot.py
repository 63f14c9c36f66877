"""The timeline as a picture: rank classes below one another, time to the right, coloured by kind.

Above the whole step, below a few micro-batches of its middle. Every pixel column shows the mixture of what ran in its
stretch of time, so that a million kernels take no more room than a hundred; idle time is white.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simulator.report import quantities as write
from simulator.report import summary
from simulator.report.colours import BACKWARD, COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simulator.engine.timeline import Timeline
    from simulator.program.program import Program
    from simulator.results.prediction import Prediction

Floats = npt.NDArray[np.float64]

COLUMNS = 1600
MOST_CLASSES = 16
ROWS = (("compute", ("compute",)), ("pp", ("pp-",)), ("dp", ("dp", "ep", "cp")))
"""Rows of one rank class, and how the names of the lanes in each begin; tp is shown where it stops compute."""


class TimelineFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        return buffer.getvalue()


def timeline_figure(prediction: Prediction, window: tuple[float, float] | None = None) -> Figure:
    """The whole step, and the part of it from `window[0]` to `window[1]` seconds (a few micro-batches if None)."""
    whole = prediction.whole
    program, timeline = whole.built.program, whole.run
    rows = _rows(program)
    end = timeline.makespan
    figure = TimelineFigure(figsize=(12.0, 1.6 + 2 * (0.5 + 0.16 * len(rows))), layout="constrained")
    above, below = figure.subplots(2, 1)
    present = _panel(above, program, timeline, rows, (0.0, end))
    present |= _panel(below, program, timeline, rows, window or _middle(program, timeline))
    above.set_title(f"{summary.title(prediction)}: {write.seconds(prediction.step_time_s)}", loc="left")
    below.set_title("a part of it", loc="left", fontsize=9)
    handles = [Patch(color=colour, label=name) for name, colour in _legend().items() if name in present]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles) or 1, frameon=False, fontsize=8
    )
    return figure


def _rows(program: Program) -> list[tuple[str, list[int]]]:
    """(label, lanes) of each row: one rank class per stage, or evenly chosen ones where there are very many."""
    stages = dict.fromkeys(name.partition(" (")[0] for name in program.rank_classes)
    chosen = [next(c for c, n in enumerate(program.rank_classes) if n.startswith(stage)) for stage in stages]
    if len(chosen) > MOST_CLASSES:
        chosen = [chosen[i] for i in np.linspace(0, len(chosen) - 1, MOST_CLASSES).round().astype(int)]
    rows = []
    for rank_class in chosen:
        for label, starts in ROWS:
            lanes = [
                i
                for i, lane in enumerate(program.lanes)
                if lane.rank_class == rank_class and lane.name.startswith(starts)
            ]
            if any(program.queues[lane] for lane in lanes):
                first = label == "compute"
                name = program.rank_classes[rank_class].partition(" (")[0]
                rows.append((f"{name}  {label}" if first else label, lanes))
    return rows


def _panel(
    axes: Axes,
    program: Program,
    timeline: Timeline,
    rows: list[tuple[str, list[int]]],
    window: tuple[float, float],
) -> set[str]:
    """Draw one panel; returns the names of the colours in it."""
    edges = np.linspace(*window, COLUMNS + 1)
    colours, names = _phase_colours(program)
    inks = 1.0 - np.array([to_rgb(_legend()[name]) for name in names])
    image = np.ones((len(rows), COLUMNS, 3))
    present: set[str] = set()
    for number, (_, lanes) in enumerate(rows):
        shares = np.zeros((COLUMNS, len(names)))
        for lane in lanes:
            for code, share in _shares(program, timeline, lane, edges, colours):
                shares[:, code] += share
        shares /= np.maximum(1.0, shares.sum(axis=1, keepdims=True))  # lanes of one row may run together
        image[number] -= shares @ inks
        present |= {names[code] for code in np.nonzero(shares.any(axis=0))[0].tolist()}
    axes.imshow(image.clip(0.0, 1.0), aspect="auto", interpolation="nearest", extent=(*window, len(rows), 0))
    axes.set_yticks([i + 0.5 for i in range(len(rows))], [label for label, _ in rows], fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("seconds", fontsize=8)
    for number, (label, _) in enumerate(rows):
        if number and label.startswith("stage"):
            axes.axhline(number, color="#dddddd", linewidth=0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return present


def _shares(
    program: Program, timeline: Timeline, lane: int, edges: Floats, colours: list[npt.NDArray[np.int64]]
) -> list[tuple[int, Floats]]:
    """(colour, share of each stretch between `edges` in which the lane ran it)."""
    queue = np.array(program.queues[lane], dtype=np.int64)
    queue = queue[(timeline.end[queue] > edges[0]) & (timeline.start[queue] < edges[-1])]
    spans = timeline.spans
    first, last = np.searchsorted(spans.task, queue), np.searchsorted(spans.task, queue + 1)
    if not len(queue):
        return []
    which = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    codes = np.concatenate([colours[task] for task in queue])
    found = []
    for code in np.unique(codes):
        mine = which[codes == code]
        start, end = spans.start[mine], spans.end[mine]
        done = np.cumsum(end - start)
        knots = np.column_stack([start, end]).ravel()
        busy = np.column_stack([done - (end - start), done]).ravel()
        found.append((int(code), np.diff(np.interp(edges, knots, busy)) / np.diff(edges)))
    return found


def _phase_colours(program: Program) -> tuple[list[npt.NDArray[np.int64]], list[str]]:
    """Per task the number of each phase's colour, and the names of the numbered colours."""
    names = list(_legend())
    number = {name: i for i, name in enumerate(names)}
    known: dict[tuple[int, str], npt.NDArray[np.int64]] = {}
    colours = []
    for task in program.tasks:
        key = (id(task.phases), task.name)
        if key not in known:
            known[key] = np.array(
                [number[_name(phase.kind, task.name)] for phase in task.phases], dtype=np.int64
            )
        colours.append(known[key])
    return colours, names


def _name(kind: str, task_name: str) -> str:
    if kind == "compute" and task_name == "backward":
        return "backward"
    return "forward" if kind == "compute" else kind if kind in COLOURS else "other"


def _legend() -> dict[str, str]:
    return {"forward": COLOURS["compute"], "backward": BACKWARD, **COLOURS}


def _middle(program: Program, timeline: Timeline) -> tuple[float, float]:
    """Six tasks' worth of time in the middle of the step."""
    compute = [task for lane, queue in _compute_queues(program) for task in queue]
    lengths = timeline.end[compute] - timeline.start[compute]
    half = 3.0 * float(np.median(lengths[lengths > 0.0])) if (lengths > 0.0).any() else timeline.makespan
    middle = timeline.makespan / 2.0
    return max(0.0, middle - half), min(timeline.makespan, middle + half)


def _compute_queues(program: Program) -> list[tuple[int, list[int]]]:
    return [(i, program.queues[i]) for i, lane in enumerate(program.lanes) if lane.name == "compute"]
