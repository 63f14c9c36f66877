"""What held up the work that ran slower than alone?

A kernel that shares its GPU with collectives progresses at what they leave of it: the time it loses is theirs, each
one's use of the GPU for as long as the two overlap. Transfers that ask more of a link than it has wait for that link,
whatever limits them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from simulator.results.limits import is_gpu, limiting_resource
from simulator.results.utilization import name_of

if TYPE_CHECKING:
    from simulator.engine.spans import Floats, Ints
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Phase, Program


@dataclass(frozen=True, slots=True)
class Use:
    """Work of one task that draws on a resource from `start` to `end`; `rate` is what it would progress at alone."""

    phase: Phase
    start: float
    end: float
    rate: float

    def overlap(self, start: float, end: float) -> float:
        return max(0.0, min(end, self.end) - max(start, self.start))

    @property
    def pace(self) -> float:
        """Work per second, on average."""
        return self.phase.work / (self.end - self.start)


class Delays:
    """Of the tasks of one execution, by single transfers beside them."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self._program = program
        self._timeline = timeline
        self._windows: dict[int, Windows] = {}

    def of(self, tasks: Sequence[int]) -> Iterator[tuple[Phase, Phase | str, float]]:
        """(phase, the phase or the kind of link that some of its time is due to, seconds), as often as `tasks` ran."""
        for phase, start, end, alone, times in self._timeline.stretched(tasks):
            resource = limiting_resource(self._program, phase)
            if resource is None:
                continue
            if is_gpu(self._program, resource):
                causes = self._of_kernel(phase, resource, start, end, alone)
            else:
                causes = self._of_transfer(phase, start + phase.latency, end, alone - phase.latency)
            yield from ((phase, cause, times * seconds) for cause, seconds in causes)

    def _of_kernel(
        self, phase: Phase, gpu: int, start: float, end: float, alone: float
    ) -> Iterator[tuple[Phase | str, float]]:
        taken = [
            (use.phase, use.overlap(start, end) * use.pace * dict(use.phase.draws)[gpu])
            for use in self._during(gpu, start, end)
            if limiting_resource(self._program, use.phase) != gpu
        ]
        total = sum(seconds for _, seconds in taken)
        scale = (end - start - alone) / total if total else 0.0
        if len(phase.draws) > 1:  # links may have held it up as well
            scale = min(1.0, scale)
        yield from ((other, scale * seconds) for other, seconds in taken)

    def _of_transfer(
        self, phase: Phase, start: float, end: float, alone: float
    ) -> Iterator[tuple[Phase | str, float]]:
        program = self._program
        links = {number: amount for number, amount in phase.draws if not is_gpu(program, number)}
        uses = (use for link in links for use in self._during(link, start, end))
        others = list(dict.fromkeys(use for use in uses if use.phase is not phase or use.start != start))
        edges = {edge for use in others for edge in (use.start, use.end) if start < edge < end}
        for begin, until in pairwise(sorted({start, end, *edges})):
            busy = {link: amount * phase.work / alone for link, amount in links.items()}
            for use in others:
                if use.overlap(begin, until) > 0.0:
                    for link, amount in use.phase.draws:
                        if link in busy:
                            busy[link] += amount * use.rate
            link = max(busy, key=lambda link: busy[link] / program.resources[link].capacity)
            if busy[link] > program.resources[link].capacity * (1.0 + 1e-9):
                yield name_of(program.resources[link].kind), until - begin

    def _during(self, resource: int, start: float, end: float) -> list[Use]:
        """What draws on the resource in that time."""
        if resource not in self._windows:
            self._windows[resource] = Windows.of(self._users.get(resource, []), self._timeline)
        uses = [self._use(task) for task in self._windows[resource].overlapping(start, end)]
        return [use for use in uses if use.overlap(start, end) > 0.0]

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        """Tasks of one phase by the resources that they draw on."""
        drawn: dict[int, list[int]] = {}  # by identity of phases, of which many tasks share one
        users: dict[int, list[int]] = {}
        late = self._timeline.end > self._timeline.start
        for number, task in enumerate(self._program.tasks):
            key = id(task.phases)
            if key not in drawn:
                alone = len(task.phases) == 1 and task.phases[0].work > 0.0
                drawn[key] = [r for r, amount in task.phases[0].draws if amount] if alone else []
            if drawn[key] and late[number]:
                for resource in drawn[key]:
                    users.setdefault(resource, []).append(number)
        return users

    def _use(self, number: int) -> Use:
        (phase,) = self._program.tasks[number].phases
        start, end = self._timeline.start[number], self._timeline.end[number]
        slowest = max(amount / self._program.resources[r].capacity for r, amount in phase.draws)
        return Use(phase, float(start) + phase.latency, float(end), min(phase.cap, 1.0 / slowest))


@dataclass(frozen=True)
class Windows:
    """When some tasks ran, by start; `reach` is how long any of them so far has run."""

    tasks: Ints
    start: Floats
    reach: Floats

    @classmethod
    def of(cls, tasks: Sequence[int], timeline: Timeline) -> Windows:
        numbers = np.array(tasks, dtype=np.int64)
        order = numbers[np.argsort(timeline.start[numbers], kind="stable")]
        return cls(order, timeline.start[order], np.maximum.accumulate(timeline.end[order]))

    def overlapping(self, start: float, end: float) -> list[int]:
        """A few more, where one runs for long."""
        first = int(np.searchsorted(self.reach, start, side="right"))
        found: list[int] = self.tasks[first : int(np.searchsorted(self.start, end))].tolist()
        return found
