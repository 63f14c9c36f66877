"""How far off is the prediction of when each rank computes?

Both sides are reduced to a curve per rank: the moment at which so much of the step's computing was done. As both do
the same work in the same order, the distance between the curves at equal work says how early or late each piece was
predicted, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction

Floats = npt.NDArray[np.float64]

BUSY = ("compute", "recompute", "optimizer")


@dataclass(frozen=True)
class Activity:
    """When one rank computed: `begin` and `end` of its stretches of computing, shape (stretches,), ascending."""

    begin: Floats
    end: Floats

    @property
    def work(self) -> Floats:
        """Seconds of computing done at the end of each stretch."""
        done: Floats = np.cumsum(self.end - self.begin)
        return done

    def moments(self, work: Floats, *, begins: bool) -> Floats:
        """When the piece that begins (or ends) after so much computing began (or ended)."""
        done = self.work
        side = np.searchsorted(done, work + 1e-9 if begins else work - 1e-9)
        place = np.minimum(side, len(done) - 1)
        moment: Floats = np.minimum(self.end[place] - (done[place] - work), self.end[place])
        return moment


def activity(spans: Sequence[Sequence[float]]) -> Activity:
    """From (begin, end, ...) of stretches in order; empty ones are left out."""
    times = np.array([(span[0], span[1]) for span in spans if span[1] > span[0]], dtype=float).reshape(-1, 2)
    return Activity(times[:, 0], times[:, 1])


def deviation(predicted: Activity, measured: Activity) -> float:
    """Mean distance in seconds between when each stretch began and ended and when it was predicted to.

    Raises ValueError where the two did not do the same amount of work.
    """
    done, expected = measured.work, predicted.work
    if not len(done) or not len(expected) or abs(done[-1] - expected[-1]) > 1e-3 * expected[-1]:
        raise ValueError("the ranks did not compute what was predicted")
    scale = expected[-1] / done[-1]
    ends, begins = done * scale, (done - (measured.end - measured.begin)) * scale
    late = np.abs(predicted.moments(ends, begins=False) - measured.end)
    early = np.abs(predicted.moments(begins, begins=True) - measured.begin)
    return float((late + early).mean() / 2)


def predicted_activity(prediction: Prediction) -> list[Activity]:
    """One per rank class (rank, if the prediction is not folded): what its compute lane did."""
    program, spans = prediction.built.program, prediction.run.spans
    found: list[list[tuple[float, float]]] = [[] for _ in program.rank_classes]
    for task, number, begin, end in zip(spans.task, spans.phase, spans.start, spans.end, strict=True):
        phase = program.tasks[task].phases[number]
        if phase.kind in BUSY and end > begin:
            for lane in program.tasks[task].lanes:
                if program.lanes[lane].name == "compute":
                    found[program.lanes[lane].rank_class].append((float(begin), float(end)))
    return [activity(sorted(stretches)) for stretches in found]
