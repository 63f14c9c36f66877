"""A program under construction: rank classes add their tasks one class after another and meet in shared ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from simulator.program.program import Lane, MemoryChange, Phase, Program, Resource, Task


@dataclass(slots=True)
class _TaskDraft:
    phases: tuple[Phase, ...]
    lanes: list[int]
    deps: list[int]
    at_start: list[MemoryChange] = field(default_factory=list)
    at_end: list[MemoryChange] = field(default_factory=list)
    micro_batch: int = -1
    name: str = ""


class Draft:
    """Collects tasks; a lane runs its tasks in the order in which its class added them."""

    def __init__(
        self, resources: Sequence[Resource], rank_classes: Sequence[str], members: Sequence[int]
    ) -> None:
        self._program = Program(resources=list(resources), rank_classes=rank_classes, members=members)
        self._lanes: dict[tuple[int, str], int] = {}
        self._tasks: list[_TaskDraft] = []
        self._shared: dict[Hashable, int] = {}

    def lane(self, rank_class: int, name: str, first_come: bool = False) -> int:
        key = (rank_class, name)
        if key not in self._lanes:
            self._lanes[key] = len(self._program.lanes)
            self._program.lanes.append(Lane(name, rank_class, first_come))
            self._program.queues.append([])
        return self._lanes[key]

    def add(
        self,
        rank_class: int,
        lanes: Iterable[str],
        phases: tuple[Phase, ...],
        deps: Iterable[int] = (),
        micro_batch: int = -1,
        name: str = "",
    ) -> int:
        """A task of one rank class; returns its id."""
        ids = [self.lane(rank_class, name) for name in lanes]
        task = len(self._tasks)
        self._tasks.append(_TaskDraft(phases, ids, list(deps), micro_batch=micro_batch, name=name))
        for lane in ids:
            self._program.queues[lane].append(task)
        return task

    def meet(
        self,
        key: Hashable,
        rank_class: int,
        lanes: Iterable[str],
        phases: tuple[Phase, ...],
        deps: Iterable[int] = (),
        micro_batch: int = -1,
        name: str = "",
    ) -> int:
        """A task that several rank classes carry out together, identified by `key`.

        Whoever comes first creates it; every further class adds its lanes, its dependencies and its own draws. If
        they disagree about the work (unequal hardware), the larger counts.
        """
        if key not in self._shared:
            self._shared[key] = self.add(rank_class, lanes, phases, deps, micro_batch, name)
            return self._shared[key]
        task = self._shared[key]
        draft = self._tasks[task]
        if draft.phases is not phases and draft.phases != phases:
            draft.phases = tuple(_merged(a, b) for a, b in zip(draft.phases, phases, strict=True))
        draft.deps += deps
        for name in lanes:
            lane = self.lane(rank_class, name)
            if lane not in draft.lanes:
                draft.lanes.append(lane)
                self._program.queues[lane].append(task)
        return task

    def connect(self, task: int, rank_class: int, peer: int) -> None:
        """The task is sent over the connection from `rank_class` to `peer`, after what came there before it."""
        lane = self.lane(rank_class, f"connection to {peer}", first_come=True)
        if lane not in self._tasks[task].lanes:
            self._tasks[task].lanes.append(lane)
            self._program.queues[lane].append(task)

    def memory(self, task: int, rank_class: int, kind: str, amount: float, at_end: bool = False) -> None:
        """`amount` bytes appear (or vanish, if negative) on a rank class when the task starts, or ends."""
        if amount:
            changes = self._tasks[task].at_end if at_end else self._tasks[task].at_start
            changes.append(MemoryChange(rank_class, kind, amount))

    def resident(self, rank_class: int, kind: str, amount: float) -> None:
        if amount:
            self._program.initial_memory.append(MemoryChange(rank_class, kind, amount))

    def finish(self) -> Program:
        self._program.tasks = [
            Task(
                t.phases,
                tuple(t.lanes),
                tuple(dict.fromkeys(t.deps)) if len(t.deps) > 1 else tuple(t.deps),
                tuple(t.at_start),
                tuple(t.at_end),
                t.micro_batch,
                t.name,
            )
            for t in self._tasks
        ]
        return self._program


def _merged(one: Phase, other: Phase) -> Phase:
    if one == other:
        return one
    return replace(
        one,
        work=max(one.work, other.work),
        latency=max(one.latency, other.latency),
        draws=tuple(sorted({**dict(other.draws), **dict(one.draws)}.items())),
    )
