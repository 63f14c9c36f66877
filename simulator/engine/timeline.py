"""What happened when? Start and end of every task; on demand its phases, lanes, resources and memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.chains import Chain
from simulator.engine.check import initial_capacities
from simulator.engine.critical_path import PathStep, critical_path
from simulator.engine.memory import MemoryPeak, memory_changes, memory_peaks
from simulator.engine.spans import Floats, Ints, Spans
from simulator.engine.use import use_over_time
from simulator.program.program import MemoryChange, Phase, Program

if TYPE_CHECKING:
    import pandas as pd

Log = list[tuple[float, float]]


@dataclass(frozen=True)
class Repetition:
    """`count` stretches of `seconds` that were left out because they repeat the one that begins at `start`.

    `tasks` are those that start in it, on the rank classes `classes`. `alone`: nothing but those stretches counts (a
    pipeline that never drains has no beginning and no end).
    """

    count: int
    seconds: float
    start: float
    tasks: Ints
    classes: frozenset[int]
    alone: bool = False

    @property
    def left_out(self) -> float:
        """Seconds of all that were left out."""
        return self.count * self.seconds


class Timeline:
    """The outcome of one execution. Times in seconds from the start of the program.

    `start`, `end`: float arrays of shape (tasks,). `num_events` and `num_solves` say what the run took.
    """

    def __init__(
        self,
        *,
        program: Program,
        chains: Sequence[Chain],
        start: Sequence[float],
        end: Sequence[float],
        logs: dict[int, Log],
        memory: Sequence[tuple[float, int, bool]],
        is_traced: bool,
        num_events: int,
        num_solves: int,
    ) -> None:
        """`logs[task]` are (time, coordinate in the chain) where the pace changed; a task without ran alone.

        `memory` are (time, task, whether it ends) in the order in which tasks with memory changes did so.
        """
        self.start: Floats = np.array(start, dtype=float)
        self.end: Floats = np.array(end, dtype=float)
        self.num_events = num_events
        self.num_solves = num_solves
        self._program = program
        self._chains = chains
        self._logs = logs
        self._memory = memory
        self._is_traced = is_traced
        self._totals: dict[str, dict[int, float]] = {}
        self.repetitions: tuple[Repetition, ...] = ()
        """One for each set of rank classes that goes on independently of the others; together all classes."""
        self.late: Mapping[int, float] = {}
        """When rank classes begin that do so late, because longer stretches of them than of others were left out."""
        self.executed_until: float | None = None
        """Where it goes no further yet: what starts or ends later, does so at infinity."""
        self.num_steps = 1.0
        """Training steps that it holds, repetitions included."""
        self.times_run: Floats | None = None
        """How often each task runs until the slowest replica is done, shape (tasks,), where replicas go on alone."""

    @property
    def simulated(self) -> float:
        """When the last task ends, without what was left out; zero for an empty program."""
        if self.executed_until is not None:
            return self.executed_until
        return float(self.end.max()) if len(self.end) else 0.0

    @property
    def makespan(self) -> float:
        """When the last task ends, all repetitions included."""
        left_out = min((one.left_out for one in self.repetitions), default=0.0)
        return left_out if self.is_endless else self.simulated + left_out

    @property
    def is_endless(self) -> bool:
        """Whether nothing but repeated stretches counts."""
        return any(one.alone for one in self.repetitions)

    def repetition_of(self, rank_class: int) -> Repetition | None:
        """What of the rank class was left out; None where everything was simulated."""
        return next((one for one in self.repetitions if rank_class in one.classes), None)

    @property
    def step_seconds(self) -> float:
        """Seconds per step, on average over all that it holds."""
        return self.makespan / self.num_steps

    @cached_property
    def weight(self) -> Ints | Floats:
        """How many tasks each one stands for, shape (tasks,): more than one where it was repeated."""
        if self.times_run is not None:
            return self.times_run
        weight = np.full(len(self.start), 0 if self.is_endless else 1, dtype=np.int64)
        for one in self.repetitions:
            weight[one.tasks] += one.count
        return weight

    @cached_property
    def spans(self) -> Spans:
        """When each phase of each task ran."""
        groups: dict[int, list[int]] = {}  # tasks that ran a chain at its nominal pace, by chain
        singles: list[int] = []
        parts: list[tuple[Ints, Ints, Floats, Floats, Floats]] = []
        for task, chain in enumerate(self._chains):
            if len(chain.phases) == 1:
                singles.append(task)
            elif task in self._logs:
                parts.append(self._logged(task, chain))
            else:
                groups.setdefault(id(chain), []).append(task)
        if singles:
            parts.append(self._single(np.array(singles)))
        parts += [self._unlogged(np.array(tasks)) for tasks in groups.values()]
        if not parts:
            nothing = np.empty(0)
            return Spans(nothing.astype(int), nothing.astype(int), nothing, nothing, nothing)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return Spans(*(column[order] for column in columns))

    def _single(self, tasks: Ints) -> tuple[Ints, Ints, Floats, Floats, Floats]:
        """Phases of `tasks` that have one only."""
        start, end = self.start[tasks], self.end[tasks]
        latencies = np.array([self._chains[task].phases[0].latency for task in tasks])
        return tasks, np.zeros_like(tasks), start, np.minimum(start + latencies, end), end

    def _unlogged(self, tasks: Ints) -> tuple[Ints, Ints, Floats, Floats, Floats]:
        """Phases of `tasks`, all of one chain, that ran at its nominal pace."""
        chain = self._chains[tasks[0]]
        num_phases = len(chain.phases)
        start, end = self.start[tasks], self.end[tasks]
        ends = np.minimum(np.add.outer(start, np.array(chain.phase_ends)), end[:, None])
        ends[:, -1:] = end[:, None]
        starts = np.empty_like(ends)
        starts[:, :1], starts[:, 1:] = start[:, None], ends[:, :-1]
        latencies = np.array([phase.latency for phase in chain.phases])
        return (
            np.repeat(tasks, num_phases),
            np.tile(np.arange(num_phases), len(tasks)),
            starts.ravel(),
            np.minimum(starts + latencies, ends).ravel(),
            ends.ravel(),
        )

    def _logged(self, task: int, chain: Chain) -> tuple[Ints, Ints, Floats, Floats, Floats]:
        times, coordinates = self._pace(task, chain)
        num_phases = len(chain.phases)
        ends = _first_time(np.array(chain.phase_ends), times, coordinates)
        ends[-1:] = self.end[task]
        starts = np.concatenate(([self.start[task]], ends[:-1]))[:num_phases]
        latencies = np.array([phase.latency for phase in chain.phases])
        return (
            np.full(num_phases, task),
            np.arange(num_phases),
            starts,
            np.minimum(starts + latencies, ends),
            ends,
        )

    def _pace(self, task: int, chain: Chain) -> tuple[Floats, Floats]:
        """Time and coordinate of `task` where its pace may have changed, ends included; both ascend."""
        log = [(self.start[task], 0.0), *self._logs.get(task, []), (self.end[task], chain.ends[-1])]
        points = np.array(log)
        return points[:, 0], np.maximum.accumulate(points[:, 1])

    @cached_property
    def lane_busy(self) -> Floats:
        """Seconds for which each lane ran a task, shape (lanes,)."""
        busy = np.zeros(len(self._program.lanes))
        for lane, queue in enumerate(self._program.queues):
            busy[lane] = ((self.end[queue] - self.start[queue]) * self.weight[queue]).sum()
        return busy

    def seconds_by_kind(self, tasks: Sequence[int]) -> dict[str, float]:
        """Seconds that the phases of `tasks` took, by their kind."""
        seconds: dict[str, float] = {}
        for phase, amount, _ in self.phase_seconds(tasks):
            seconds[phase.kind] = seconds.get(phase.kind, 0.0) + amount
        return seconds

    def phase_seconds(self, tasks: Sequence[int]) -> Iterator[tuple[Phase, float, float]]:
        """(phase, seconds in all, how often it ran) of the phases of `tasks`; a phase may come several times."""
        counts: dict[Chain, float] = {}
        weights = self.weight
        for task in tasks:
            chain, weight = self._chains[task], weights[task].item()
            if len(chain.phases) == 1:
                yield chain.phases[0], weight * float(self.end[task] - self.start[task]), weight
            elif task in self._logs:
                _, _, starts, _, ends = self._logged(task, chain)
                for phase, amount in zip(chain.phases, (ends - starts).tolist(), strict=True):
                    yield phase, weight * amount, weight
            else:
                counts[chain] = counts.get(chain, 0) + weight
        for chain, count in counts.items():
            begin = 0.0
            for phase, end in zip(chain.phases, chain.phase_ends, strict=True):
                yield phase, count * (end - begin), count
                begin = end

    def stretched(self, tasks: Sequence[int]) -> Iterator[tuple[Phase, float, float, float, float]]:
        """(phase, start, end, seconds alone, how often it ran) of the phases of `tasks` that others held up."""
        for task in tasks:
            chain = self._chains[task]
            start, end = float(self.start[task]), float(self.end[task])
            if end - start <= chain.ends[-1] * (1 + 1e-12):
                continue
            _, _, starts, _, ends = self._logged(task, chain)
            begin, weight = 0.0, self.weight[task].item()
            spans = zip(chain.phases, starts.tolist(), ends.tolist(), chain.phase_ends, strict=True)
            for phase, first, last, alone in spans:
                if last - first > (alone - begin) * (1 + 1e-9):
                    yield phase, first, last, alone - begin, weight
                begin = alone

    def totals_by_class(self, quantity: str) -> dict[int, float]:
        """Sum over phases of `quantity` (flops, hbm_bytes) for each rank class whose compute lane ran them."""
        if quantity not in self._totals:
            self._totals[quantity] = self._find_totals(attrgetter(quantity))
        return self._totals[quantity]

    def _find_totals(self, quantity: Callable[[Phase], float]) -> dict[int, float]:
        amounts: dict[Chain, float] = {}
        totals: dict[int, float] = {}
        for (chain, rank_class), count in self._computed.items():
            if chain not in amounts:
                amounts[chain] = sum(map(quantity, chain.phases))
            if amounts[chain]:
                totals[rank_class] = totals.get(rank_class, 0.0) + count * amounts[chain]
        return totals

    @cached_property
    def _computed(self) -> dict[tuple[Chain, int], float]:
        """How often each chain ran on the compute lane of each rank class."""
        ran: dict[tuple[Chain, int], float] = {}
        weights = self.weight.tolist()
        for lane, queue in zip(self._program.lanes, self._program.queues, strict=True):
            if lane.name == "compute":
                for task in queue:
                    key = (self._chains[task], lane.rank_class)
                    ran[key] = ran.get(key, 0) + weights[task]
        return ran

    @cached_property
    def use(self) -> Floats:
        """What was drawn from each resource in all (bytes through a link, GPU seconds), shape (resources,).

        The integral of use over time; every task has ended, so it is work x draws.
        """
        counts: dict[Chain, float] = {}
        for chain, weight in zip(self._chains, self.weight.tolist(), strict=True):
            counts[chain] = counts.get(chain, 0) + weight
        use = [0.0] * len(self._program.resources)
        for chain, count in counts.items():
            for phase in chain.phases:
                for resource, amount in phase.draws:
                    use[resource] += count * phase.work * amount
        return np.array(use)

    @cached_property
    def offered(self) -> Floats:
        """Integral of each resource's capacity from the start to the makespan, shape (resources,)."""
        makespan = self.makespan
        capacities = np.array(initial_capacities(self._program))
        offered = capacities * makespan if makespan > 0.0 else np.zeros_like(capacities)
        for change in sorted(self._program.capacity_changes, key=lambda change: change.time):
            if 0.0 < change.time < makespan:
                offered[change.resource] += (change.capacity - capacities[change.resource]) * (
                    makespan - change.time
                )
                capacities[change.resource] = change.capacity
        return offered

    @cached_property
    def utilization(self) -> Floats:
        """`use` / `offered` in [0, 1], shape (resources,); zero where nothing is offered."""
        return np.divide(self.use, self.offered, out=np.zeros_like(self.use), where=self.offered > 0.0)

    def use_history(self, resource: int) -> tuple[Floats, Floats]:
        """Use of `resource` over time: `use[j]` units per second from `time[j]` to `time[j + 1]`, then 0.

        Raises ValueError if the program was executed without `trace=True`.
        """
        return self.use_histories([resource])[resource]

    def use_histories(self, resources: Collection[int]) -> dict[int, tuple[Floats, Floats]]:
        """`use_history` of several resources in one pass."""
        if not self._is_traced:
            raise ValueError("rates over time were not recorded: execute(program, trace=True)")
        return use_over_time(self._program, self.spans, self.pace, resources)

    def pace(self, task: int) -> tuple[list[float], list[float]]:
        """Times at which the pace of `task` may have changed, and its place (see `chains`) at each; both ascend."""
        times, places = self._pace(task, self._chains[task])
        return times.tolist(), places.tolist()

    def memory_changes(self) -> Iterator[tuple[float, MemoryChange]]:
        """(time, change) in the order in which memory was taken and given back, what is resident first."""
        return memory_changes(self._program, self._memory)

    @cached_property
    def memory(self) -> list[MemoryPeak]:
        """The peak of each rank class that holds memory, by rank class."""
        return memory_peaks(self._program, self._memory)

    def critical_path(self, program: Program) -> list[PathStep]:
        """What determined the makespan: phases back to back from time zero to the end."""
        return critical_path(program, self.start, self.end, self.spans)

    def to_frame(self) -> pd.DataFrame:
        """One row per phase: task, phase, kind, label, lane, rank_class, micro_batch, start, end, seconds."""
        import pandas as pd

        spans, tasks, lanes = self.spans, self._program.tasks, self._program.lanes
        rows = [
            (phase.kind, phase.label, lanes[lane].name, lanes[lane].rank_class, tasks[task].micro_batch)
            for task, phase, lane in self._phases_of(spans)
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 5
        return pd.DataFrame(
            {
                "task": spans.task,
                "phase": spans.phase,
                "kind": columns[0],
                "label": columns[1],
                "lane": columns[2],
                "rank_class": columns[3],
                "micro_batch": columns[4],
                "start": spans.start,
                "end": spans.end,
                "seconds": spans.end - spans.start,
            }
        )

    def _phases_of(self, spans: Spans) -> Iterator[tuple[int, Phase, int]]:
        for task, number in zip(spans.task.tolist(), spans.phase.tolist(), strict=True):
            phase = self._chains[task].phases[number]
            yield task, phase, self._program.tasks[task].lanes[phase.lane]


def _first_time(coordinates: Floats, times: Floats, places: Floats) -> Floats:
    """When each of `coordinates` was first reached; the `places` (ascending) were at the `times`."""
    after = np.searchsorted(places, coordinates, side="left").clip(1, len(places) - 1)
    low, high = places[after - 1], places[after]
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(high > low, (coordinates - low) / (high - low), 0.0)
    return times[after - 1] + fraction.clip(0.0, 1.0) * (times[after] - times[after - 1])
