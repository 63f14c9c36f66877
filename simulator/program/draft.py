"""A program under construction: rank classes add their tasks one class after another and meet in shared ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from simulator.program.program import Lane, MemoryChange, Phase, Program, Resource, Task

Phases = tuple[Phase, ...]

Meetings = dict[Hashable, int]
"""Shared tasks by what identifies them."""


class Draft:
    """Collects tasks; a lane runs its tasks in the order in which its class added them."""

    def __init__(
        self, resources: Sequence[Resource], rank_classes: Sequence[str], members: Sequence[int]
    ) -> None:
        self._program = Program(resources=list(resources), rank_classes=rank_classes, members=members)
        self._lanes: dict[tuple[int, str], int] = {}
        self._tasks = self._program.tasks
        self._queues = self._program.queues
        self._shared: Meetings = {}
        self._channels: dict[Hashable, Meetings] = {}
        # Equal tuples are one object, so that whoever reads the program sees at once what tasks have in common.
        self._sets_of_lanes: dict[tuple[int, tuple[str, ...]], tuple[int, ...]] = {}
        self._widened: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
        self._merged: dict[tuple[int, int], tuple[Phases, Phases, Phases]] = {}  # by the identity of two

    def __len__(self) -> int:
        return len(self._tasks)

    def lane(self, rank_class: int, name: str, first_come: bool = False) -> int:
        key = (rank_class, name)
        if key not in self._lanes:
            self._lanes[key] = len(self._program.lanes)
            self._program.lanes.append(Lane(name, rank_class, first_come))
            self._queues.append([])
        return self._lanes[key]

    def _find_lanes(self, rank_class: int, names: tuple[str, ...]) -> tuple[int, ...]:
        found = self._sets_of_lanes[rank_class, names] = tuple(
            [self.lane(rank_class, name) for name in names]
        )
        return found

    def add(
        self,
        rank_class: int,
        lanes: tuple[str, ...],
        phases: Phases,
        deps: Iterable[int] = (),
        micro_batch: int = -1,
        name: str = "",
    ) -> int:
        """A task of one rank class; returns its id."""
        ids = self._sets_of_lanes.get((rank_class, lanes)) or self._find_lanes(rank_class, lanes)
        tasks, queues = self._tasks, self._queues
        task = len(tasks)
        deps = tuple(deps)
        if len(deps) > 1:
            deps = _distinct(deps)
        tasks.append(Task(phases, ids, deps, (), (), micro_batch, name))
        for lane in ids:
            queues[lane].append(task)
        return task

    def meet(
        self,
        key: Hashable,
        rank_class: int,
        lanes: tuple[str, ...],
        phases: Phases,
        deps: Iterable[int] = (),
        micro_batch: int = -1,
        name: str = "",
        channel: Meetings | None = None,
    ) -> int:
        """A task that several rank classes carry out together, identified by `key` (among those of a `channel`).

        Whoever comes first creates it; every further class adds its lanes, its dependencies and its own draws. If
        they disagree about the work (unequal hardware), the larger counts.
        """
        met = self._shared if channel is None else channel
        task = met.get(key)
        if task is None:
            task = met[key] = self.add(rank_class, lanes, phases, deps, micro_batch, name)
            return task
        shared = self._tasks[task]
        if shared.phases is not phases:
            shared.phases = self._merge(shared.phases, phases)
        if deps:
            shared.deps = _distinct((*shared.deps, *deps)) if shared.deps else _distinct(deps)
        ids = self._sets_of_lanes.get((rank_class, lanes)) or self._find_lanes(rank_class, lanes)
        self._join(task, ids)
        return task

    def channel(self, key: Hashable) -> Meetings:
        """The shared tasks of one kind, for those who meet in many: their own keys tell these apart."""
        return self._channels.setdefault(key, {})

    def connect(self, task: int, rank_class: int, peer: int) -> None:
        """The task is sent over the connection from `rank_class` to `peer`, after what came there before it."""
        self._join(task, (self.lane(rank_class, f"connection to {peer}", first_come=True),))

    def _join(self, task: int, lanes: tuple[int, ...]) -> None:
        """The task also occupies `lanes`."""
        shared, queues = self._tasks[task], self._queues
        before = shared.lanes
        joint = self._widened.get((before, lanes))
        if joint is None:
            joint = (*before, *(lane for lane in lanes if lane not in before))
            self._widened[before, lanes] = joint
        shared.lanes = joint
        for lane in joint[len(before) :]:
            queues[lane].append(task)

    def _merge(self, one: Phases, other: Phases) -> Phases:
        """Phase by phase the larger work, with the draws of both."""
        key = (id(one), id(other))
        if key not in self._merged:
            both = one
            if one != other:
                both = tuple(_merged(a, b) for a, b in zip(one, other, strict=True))
            self._merged[key] = one, other, both
        return self._merged[key][2]

    def memory(self, task: int, rank_class: int, kind: str, amount: float, at_end: bool = False) -> None:
        """`amount` bytes appear (or vanish, if negative) on a rank class when the task starts, or ends."""
        if amount:
            change = (MemoryChange(rank_class, kind, amount),)
            self.hold(task, task, *(((), change) if at_end else (change, ())))

    def hold(
        self, first: int, last: int, taken: tuple[MemoryChange, ...], freed: tuple[MemoryChange, ...]
    ) -> None:
        """What is taken when the task `first` starts, and given back when `last` ends."""
        if taken:
            self._tasks[first].at_start += taken
        if freed:
            self._tasks[last].at_end += freed

    def resident(self, rank_class: int, kind: str, amount: float) -> None:
        if amount:
            self._program.initial_memory.append(MemoryChange(rank_class, kind, amount))

    def finish(self) -> Program:
        return self._program


def _distinct(tasks: Iterable[int]) -> tuple[int, ...]:
    found = tuple(tasks)
    return found if len(found) < 2 else tuple(dict.fromkeys(found))


def _merged(one: Phase, other: Phase) -> Phase:
    if one == other:
        return one
    return one._replace(
        work=max(one.work, other.work),
        latency=max(one.latency, other.latency),
        draws=tuple(sorted({**dict(other.draws), **dict(one.draws)}.items())),
    )
