"""How much faster than the slowest are replicas that do not wait for one another?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.program.program import Program
from simulator.program.servers import OF_ALL

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.ranks.grid import Grid

Floats = NDArray[np.float64]


def replica_paces(program: Program, timeline: Timeline, grid: Grid, rank_class: NDArray[np.int64]) -> Floats:
    """Steps that the replica of each rank class makes in one of the slowest, shape (rank classes,).

    A replica's step ends with the last task of its ranks; what stands for the traffic of all is not its own.
    """
    ends = np.zeros(len(program.members))
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if queue and not lane.name.endswith(OF_ALL):
            ends[lane.rank_class] = max(ends[lane.rank_class], float(timeline.end[queue].max()))
    replica = grid.coordinate("dp")
    step = np.zeros(grid.dp)
    np.maximum.at(step, replica, ends[rank_class])
    of_class = np.zeros(len(ends))
    of_class[rank_class] = step[replica]
    return np.asarray(step.max() / of_class)


def task_paces(program: Program, pace: Floats) -> Floats:
    """How often each task runs meanwhile, shape (tasks,); what stands for all is complete as it is."""
    found = np.ones(len(program.tasks))
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if not lane.name.endswith(OF_ALL):
            found[queue] = pace[lane.rank_class]
    return found
