"""What expressions can ask of a prediction beyond its result: time by name, a collective alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.costs.collectives import collective_seconds
from simulator.results.breakdown import critical_class

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction


def seconds(prediction: Prediction, name: str) -> float:
    """Seconds that the busiest rank class spends per step in tasks of that name or label (forward, backward, ...)."""
    program, timeline = prediction.built.program, prediction.run
    rank_class = critical_class(program, timeline)
    queues = zip(program.lanes, program.queues, strict=True)
    mine = sorted({task for lane, queue in queues if lane.rank_class == rank_class for task in queue})
    found = [task for task in mine if name in (program.tasks[task].name, program.tasks[task].label)]
    total = float(((timeline.end[found] - timeline.start[found]) * timeline.weight[found]).sum())
    return total / timeline.num_steps


def collective(prediction: Prediction, op: str, size: float, axis: str = "dp_cp") -> float:
    """Seconds of one collective, alone, over the data-parallel ranks or the first group of another axis of the grid.

    `size` as `operators.Collective` counts it; `cp@d` is the axis of d neighbours.
    """
    groups = prediction.built.communicators.communicators
    members = groups.members(axis)
    if members.shape[1] < 2 or size <= 0.0:
        return 0.0
    shapes, which = groups.shapes(axis)
    shape = shapes[int(which[0])]
    return collective_seconds(groups.costs(axis, op, float(size))[int(which[0])], shape)
