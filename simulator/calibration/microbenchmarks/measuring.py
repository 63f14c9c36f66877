"""How often is a case warmed up and repeated, and what is recorded?"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.calibration.microbenchmarks.benchmark import Trial
from simulator.calibration.microbenchmarks.groups import Groups


@dataclass(frozen=True)
class Effort:
    """`shortest` is how long one timed loop should last at least, `budget` how long a case may take in all (s)."""

    repeats: int = 12
    fewest: int = 5
    warmups: int = 2
    shortest: float = 5e-3
    budget: float = 3.0
    most_times: int = 2000

    def times(self, seconds: float) -> int:
        """Operations per timed loop, given that one takes about so many seconds."""
        return min(self.most_times, max(1, math.ceil(self.shortest / max(seconds, 1e-9))))

    def num_repeats(self, seconds: float) -> int:
        """Timed loops: as many as wanted, fewer if they would exceed the budget, but never below `fewest`."""
        loop = seconds * self.times(seconds)
        return max(self.fewest, min(self.repeats, math.floor(self.budget / max(loop, 1e-9))))


def measure(trial: Trial | None, groups: Groups, effort: Effort) -> tuple[int, dict[str, list[float]]]:
    """(operations per loop, seconds per operation of each repeat by series), on a rank that takes part.

    A rank with no `trial` keeps step with the others and returns no series. The others start every loop together.
    """
    first = trial(1) if trial else {}  # builds connections, loads code
    groups.barrier()
    first = trial(1) if trial else {}
    seconds = groups.agree_on_largest(max(first.values(), default=0.0))
    times, series = effort.times(seconds), dict[str, list[float]]()
    for repeat in range(-effort.warmups, effort.num_repeats(seconds)):
        moment = groups.moment()
        if trial is None:
            continue
        time.sleep(max(0.0, moment - time.monotonic()))
        for name, taken in trial(times).items():
            if repeat >= 0:
                series.setdefault(name, []).append(taken)
    return times, series


def slowest(per_rank: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Repeat by repeat the longest time of any rank, by series: a collective has ended when its last rank has."""
    names = dict.fromkeys(name for series in per_rank for name in series)
    return {
        name: [max(times) for times in zip(*(s[name] for s in per_rank if name in s), strict=True)]
        for name in names
    }
