"""How can some rank classes do later what they did, as if they had begun later, without doing it again?

Classes that share neither tasks nor resources before they meet do not notice when the others do what. So a run can
stop where the first of them would meet, be told how much later each should be, and go on from there: what has happened,
what is under way and what is due are moved. The meeting itself waits until everyone has got as far as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.engine.network import Component, Flow

if TYPE_CHECKING:
    from simulator.engine.clock import Alarm
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Program


@dataclass(frozen=True)
class Meeting:
    """`tasks`: what classes carry out together that have nothing to do with one another before.

    `late`: asked once, before the first of these starts (or at the end, if there is none), with all that has happened
    by then: by how many seconds each rank class should have done it later. None gives the run up.
    """

    tasks: frozenset[int]
    late: Callable[[Timeline], Mapping[int, float] | None]


class Delays:
    """By how much tasks, and what stands for them in the engine, are late."""

    def __init__(self, program: Program, late: Mapping[int, float]) -> None:
        self._of_lane = [late.get(lane.rank_class, 0.0) for lane in program.lanes]
        self._tasks = program.tasks
        self.of_task = [self._of_lane[task.lanes[0]] for task in program.tasks]
        self.longest = max(late.values(), default=0.0)

    def begin(self, task: int) -> float:
        """When all classes that take part in the task have begun."""
        return max(self._of_lane[lane] for lane in self._tasks[task].lanes)

    def of_alarm(self, alarm: Alarm) -> float:
        target = alarm.target
        if isinstance(target, int):
            return self.of_task[target]
        if isinstance(target, Component):  # of classes that are equally late; empty if it is outdated
            return next((self.of_task[flow.task] for demand in target.demands for flow in demand.flows), 0.0)
        return self.of_task[target.task] if isinstance(target, Flow) else 0.0

    def move_tasks(self, start: list[float], end: list[float]) -> None:
        """What has started or ended (is not negative) did so later."""
        for times in (start, end):
            times[:] = [
                time + late if time >= 0.0 else time for time, late in zip(times, self.of_task, strict=True)
            ]

    def move_flows(self, flows: Iterable[Flow]) -> None:
        for flow in flows:
            late = self.of_task[flow.task]
            flow.origin += late
            flow.updated += late
            flow.finish += late
            if flow.log:
                flow.log = self.move_log(flow.task, flow.log)

    def move_log(self, task: int, log: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(time + self.of_task[task], place) for time, place in log]

    def move_memory(self, memory: list[tuple[float, int, bool]]) -> None:
        """Changes stay in order within each class, and come in order of time."""
        memory[:] = [(time + self.of_task[task], task, ended) for time, task, ended in memory]
        memory.sort(key=lambda change: change[0])
