"""What expressions can ask of a prediction beyond its result: time by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    return float(((timeline.end[found] - timeline.start[found]) * timeline.weight[found]).sum())
