"""When does each task of a program start and end? Runs it: lanes, rendezvous, fluid sharing.

A task starts when it heads all its lanes and all its dependencies have ended, that is when its predecessors
of both kinds have ended: the program is one graph. Only then does it queue for its first-come lane, if it has
one. An instant is processed in this order: capacity changes,
ends by task id, starts by task id, then the rates of what is affected.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from simulator.engine.chains import Chain, Chains
from simulator.engine.check import check_program, initial_capacities
from simulator.engine.clock import Alarm, Callbacks, Clock
from simulator.engine.deadlock import deadlock
from simulator.engine.network import Flow
from simulator.engine.postponing import Delays, Meeting
from simulator.engine.sharing import Sharing
from simulator.engine.timeline import Timeline
from simulator.program.program import CapacityChange, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Exact savings, each of which can be switched off to check that it changes nothing.

    private: resources used by one task at a time never reach the solver. dominance: nor do those that can
    never be the limit, since another with the same users always is first. merge_phases: equal neighbours are
    one step. solo_chains: a task whose resources nobody else touches is one event, however many phases it
    has. company: so is one that never slows down those beside it, until they change. incremental: only the
    affected component is solved. cache: rates of recurring sets of flows are remembered.
    """

    private: bool = True
    dominance: bool = True
    merge_phases: bool = True
    solo_chains: bool = True
    company: bool = True
    incremental: bool = True
    cache: bool = True


PLAIN = EngineOptions(
    private=False,
    dominance=False,
    merge_phases=False,
    solo_chains=False,
    company=False,
    incremental=False,
    cache=False,
)
"""No savings: the reference that the others must equal."""


def execute(program: Program, *, trace: bool = False, options: EngineOptions | None = None) -> Timeline:
    """Executes `program` to its end.

    `trace` records every change of rate, which `Timeline.use_history` needs.
    Raises ProgramError if the program makes no sense, DeadlockError if some tasks can never end.
    """
    timeline = _execute(program, options, trace, None)
    assert timeline is not None
    return timeline


def execute_apart(
    program: Program, meeting: Meeting, *, options: EngineOptions | None = None
) -> Timeline | None:
    """Executes `program` as if classes began as late as the meeting says once it is known (see `postponing`).

    None where the meeting gives the run up, or some would meet before all others have got as far as they were.
    Capacities must not change, and no lane be first-come.
    """
    return _execute(program, options, False, meeting)


def _execute(
    program: Program, options: EngineOptions | None, trace: bool, meeting: Meeting | None
) -> Timeline | None:
    check_program(program)
    execution = _Execution(program, options or EngineOptions(), trace, meeting)
    try:
        return execution.run()
    finally:
        execution.let_go()


class _Execution:
    """The state of one run."""

    def __init__(
        self, program: Program, options: EngineOptions, trace: bool, meeting: Meeting | None
    ) -> None:
        num_tasks = len(program.tasks)
        self._program = program
        self._tasks = program.tasks
        self._trace = trace
        self._meeting = meeting
        self._kept_back: list[int] = []  # tasks of the meeting that could start
        self._held: frozenset[int] = frozenset()  # tasks that must not start before `_earliest_meeting`
        self._earliest_meeting = 0.0
        self._given_up = False
        self._capacities = initial_capacities(program)
        self._chains: list[Chain] = Chains(
            program,
            self._capacities,
            find_private=options.private,
            merge_phases=options.merge_phases,
            drop_dominated=options.dominance,
        ).of_task
        self._successors, self._num_awaited = successors(program)
        self._ready = [task for task in range(num_tasks) if self._num_awaited[task] == 0]
        self._gates = Gates(program) if any(lane.first_come for lane in program.lanes) else None
        self._start = [-1.0] * num_tasks
        self._end = [-1.0] * num_tasks
        self._memory: list[tuple[float, int, bool]] = []
        self._clock = Clock()
        self._end_callbacks: Callbacks = [self._on_end]
        self._settle_callbacks: Callbacks = [self._on_settle]
        self._release_callbacks: Callbacks = [self._on_release]
        self._is_settling = False
        self._sharing = Sharing(
            self._clock,
            self._capacities,
            self._finish,
            self._wake,
            solo_chains=options.solo_chains,
            company=options.company,
            incremental=options.incremental,
            cache=options.cache,
        )

    def run(self) -> Timeline | None:
        for change in self._program.capacity_changes:
            if change.time > 0.0:
                self._clock.at(change.time, -1, Alarm([self._on_capacity], change))
        self._settle()
        self._clock.run_out()
        if self._meeting is not None:
            self._postpone(self._meeting)
            self._settle()
            self._clock.run_out()
        if self._given_up:
            return None
        if min(self._end, default=0.0) < 0.0:
            raise deadlock(self._program, self._start, self._end, self._capacities)
        return self._timeline(self._start, self._end)

    def _timeline(self, start: list[float], end: list[float]) -> Timeline:
        return Timeline(
            program=self._program,
            chains=self._chains,
            start=start,
            end=end,
            logs=self._sharing.logs,
            memory=self._memory,
            is_traced=self._trace,
            num_events=self._clock.num_events(),
            num_solves=self._sharing.network.num_solves,
        )

    def _postpone(self, meeting: Meeting) -> None:
        """Where the first would meet: moves everything by what the meeting says, and lets it wait for that."""
        self._meeting = None
        unknown = [[time if time >= 0.0 else inf for time in times] for times in (self._start, self._end)]
        so_far = self._timeline(*unknown)
        so_far.executed_until = self._clock.now
        late = meeting.late(so_far)
        if late is None:
            self._give_up()
            return
        delays = Delays(self._program, late)
        self._clock.move(delays.of_alarm)
        delays.move_tasks(self._start, self._end)
        delays.move_flows(self._sharing.flows())
        delays.move_memory(self._memory)
        for task, log in self._sharing.logs.items():
            self._sharing.logs[task] = delays.move_log(task, log)
        self._earliest_meeting = self._clock.now + delays.longest
        self._hold({task: delays.begin(task) for task in meeting.tasks})
        self._held = meeting.tasks

    def _hold(self, earliest: dict[int, float]) -> None:
        """These tasks wait for the given times, and for what has ended already, which may be later than now."""
        now = self._clock.now
        for task, end in enumerate(self._end):
            if end > now:
                for successor in self._successors[task]:
                    if end > earliest.get(successor, inf):
                        earliest[successor] = end
        held = {task: time for task, time in earliest.items() if time > now}
        self._ready = [task for task in self._ready if task not in held]
        for task, time in held.items():
            self._num_awaited[task] += 1
            self._clock.at(time, task, Alarm(self._release_callbacks, task))

    def _on_release(self, alarm: Alarm) -> None:
        self._release(alarm.target)
        self._wake()

    def _release(self, task: int) -> None:
        self._num_awaited[task] -= 1
        if self._num_awaited[task] == 0:
            self._ready.append(task)

    def _give_up(self) -> None:
        self._given_up = True
        self._ready = []
        self._clock.forget()

    def let_go(self) -> None:
        """Frees all of it at once: owners and the callbacks that hold them would wait for the garbage collector."""
        self._end_callbacks.clear()
        self._settle_callbacks.clear()
        self._release_callbacks.clear()
        self._meeting = None
        self._sharing.let_go()
        del self._sharing

    def _settle(self) -> None:
        """Starts what can start at this instant, then lets the shared resources settle."""
        while self._ready:
            if self._clock.now < self._earliest_meeting and not self._held.isdisjoint(self._ready):
                self._give_up()
            starting, self._ready = self._ready, []
            if self._meeting is not None:
                self._kept_back += [task for task in starting if task in self._meeting.tasks]
                starting = [task for task in starting if task not in self._meeting.tasks]
            starting.sort()
            gates = self._gates
            for task in starting:
                if gates is None or gates.admits(task):
                    self._begin(task)
        self._sharing.settle()
        if self._kept_back and self._meeting is not None:
            self._ready, self._kept_back = self._kept_back, []
            self._postpone(self._meeting)
            self._settle()

    def _begin(self, task: int) -> None:
        now = self._start[task] = self._clock.now
        if self._tasks[task].at_start:
            self._memory.append((now, task, False))
        chain = self._chains[task]
        if chain.resources:
            self._sharing.admit(Flow(task, chain, self._trace or len(chain.phases) > 1))
        elif chain.ends[-1] > 0.0:
            self._clock.at(now + chain.ends[-1], task, Alarm(self._end_callbacks, task))
        else:
            self._finish(task)

    def _finish(self, task: int) -> None:
        now = self._end[task] = self._clock.now
        if self._tasks[task].at_end:
            self._memory.append((now, task, True))
        num_awaited = self._num_awaited
        for successor in self._successors[task]:
            left = num_awaited[successor] = num_awaited[successor] - 1
            if left == 0:
                self._ready.append(successor)
        if self._gates is not None:
            following = self._gates.release(task)
            if following is not None:
                self._ready.append(following)

    def _wake(self) -> None:
        """Settles once everything that ends at this instant has ended."""
        if self._is_settling:
            return
        if self._clock.is_last_of_instant():
            self._settle()
        else:
            self._is_settling = True
            self._clock.at(self._clock.now, len(self._tasks), Alarm(self._settle_callbacks, None))

    def _on_settle(self, _: Alarm) -> None:
        self._is_settling = False
        self._settle()

    def _on_end(self, alarm: Alarm) -> None:
        self._finish(alarm.target)
        self._wake()

    def _on_capacity(self, alarm: Alarm) -> None:
        change: CapacityChange = alarm.target
        self._sharing.set_capacity(change.resource, change.capacity)


class Gates:
    """The first-come lanes: who holds each, and who waits for it in the order of becoming ready."""

    def __init__(self, program: Program) -> None:
        self._lane_of: dict[int, int] = {}
        for lane, queue in enumerate(program.queues):
            if program.lanes[lane].first_come:
                self._lane_of |= dict.fromkeys(queue, lane)
        self._holder: dict[int, int] = {}
        self._waiting: dict[int, deque[int]] = {}

    def admits(self, task: int) -> bool:
        """Whether the ready task may start now; if not, it waits for `release` to return it."""
        lane = self._lane_of.get(task)
        if lane is None or self._holder.setdefault(lane, task) == task:
            return True
        self._waiting.setdefault(lane, deque()).append(task)
        return False

    def release(self, task: int) -> int | None:
        """The task that may start now that this one has ended, if one waited for it."""
        lane = self._lane_of.get(task)
        if lane is None:
            return None
        waiting = self._waiting.get(lane)
        if not waiting:
            del self._holder[lane]
            return None
        self._holder[lane] = waiting.popleft()
        return self._holder[lane]


def successors(program: Program) -> tuple[list[list[int]], list[int]]:
    """The program as one graph: the tasks that wait for each task, and how many waits each task has.

    A task waits for its dependencies and for the task before it in each of its in-order lanes.
    """
    following: list[list[int]] = [[] for _ in program.tasks]
    num_awaited = [len(task.deps) for task in program.tasks]
    for i, task in enumerate(program.tasks):
        for dep in task.deps:
            following[dep].append(i)
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if not lane.first_come:
            for previous, i in pairwise(queue):
                following[previous].append(i)
                num_awaited[i] += 1
    return following, num_awaited
