"""Phases of an executed program in time, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Phase `phase[j]` of task `task[j]` ran from `start[j]` to `end[j]` (s).

    Sorted by task, then phase. `work_start` is when its latency was over.
    """

    task: Ints
    phase: Ints
    start: Floats
    work_start: Floats
    end: Floats
