"""What does a task's run of phases come down to? Steps: a delay with nothing shared, then shared work.

The engine only meets steps. Three savings are made here, all exact:

- *private*: if all tasks that draw on a resource have a lane in common, one at a time uses it, and it limits
  that one like a cap. Work that draws on private resources only takes a time known in advance: it becomes
  part of a delay.
- *merge_phases*: consecutive phases with the same draws, cap and weight and no latency between are one step,
  and consecutive delays are one delay.
- *dominance*: resources that can never be the limit are left out; see `dominance`.

Where a phase begins and ends is kept as a coordinate: seconds since the task started, had it run alone at
the initial capacities. Time as a function of the coordinate is piecewise linear, which is how `timeline`
finds the phases again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from simulator.engine.dominance import dominated
from simulator.engine.fair_sharing import alone
from simulator.program.program import Draws, Phase, Program

if TYPE_CHECKING:
    from simulator.engine.network import Component, Flow


class Demand:
    """One way of drawing on shared resources; work in progress with the same demand runs at the same rate."""

    __slots__ = ("cap", "component", "draws", "flows", "index", "mark", "nominal_rate", "resources", "weight")

    def __init__(self, index: int, draws: Draws, cap: float, weight: float, nominal_rate: float) -> None:
        self.index = index
        self.set_draws(draws)
        self.cap = cap
        self.weight = weight
        self.nominal_rate = nominal_rate
        self.flows: dict[Flow, None] = {}  # the work in progress, in order of arrival
        self.component: Component | None = None
        self.mark = 0

    def set_draws(self, draws: Draws) -> None:
        self.draws = draws
        self.resources = tuple([resource for resource, _ in draws])


class Pace(NamedTuple):
    """Seconds from the start of a chain at which the work of each step begins and ends, at known rates.

    `stops`: steps whose rates are not known (they count as taking what they would alone).
    """

    work_at: list[float]
    ends: list[float]
    stops: Sequence[int] = ()

    def until(self, step: int) -> int:
        """The first step from `step` on whose rate is not known, or the number of steps."""
        stops = self.stops
        if not stops or stops[-1] < step:
            return len(self.ends)
        return stops[bisect_left(stops, step)]


class Chain:
    """A run of phases as steps. Step k: `delays[k]` seconds, then `works[k]` units of `demands[k]`.

    `work_at[k]` and `ends[k]` are the coordinates at which its work begins and ends; `phase_ends` are those of the
    ends of the original phases. `resources` are the shared ones that any step draws on; the chain `varies` if the
    capacity of one of them changes at some time. `solo`: its pace alone, at the capacities after `solo_epoch`
    changes; the coordinates themselves unless the chain varies.
    """

    __slots__ = (
        "delays",
        "demands",
        "ends",
        "phase_ends",
        "phases",
        "resources",
        "solo",
        "solo_epoch",
        "varies",
        "work_at",
        "works",
    )

    def __init__(self, phases: tuple[Phase, ...], phase_ends: list[float]) -> None:
        self.phases = phases
        self.phase_ends = phase_ends
        self.delays: list[float] = []
        self.works: list[float] = []
        self.demands: list[Demand | None] = []
        self.work_at: list[float] = []
        self.ends: list[float] = []
        self.resources: tuple[int, ...] = ()
        self.varies = False
        self.solo = Pace(self.work_at, self.ends)
        self.solo_epoch = -1

    def add_step(self, delay: float, work: float, demand: Demand | None, work_at: float, end: float) -> None:
        self.delays.append(delay)
        self.works.append(work)
        self.demands.append(demand)
        self.work_at.append(work_at)
        self.ends.append(end)

    def time_alone(self, capacities: Sequence[float], epoch: int) -> float:
        """Seconds it takes alone after `epoch` capacity changes; infinite if it would stall."""
        if self.varies and self.solo_epoch != epoch:
            self.solo_epoch = epoch
            demands = {demand for demand in self.demands if demand is not None}
            self.solo = self.pace({one: alone(capacities, one.draws, one.cap) for one in demands})
        return self.solo.ends[-1]

    def pace(self, rates: Mapping[Demand, float]) -> Pace:
        """When its steps begin and end at these rates of work, as far as they are known."""
        work_at, ends, stops = list[float](), list[float](), list[int]()
        time = 0.0
        for step, (delay, work, demand) in enumerate(zip(self.delays, self.works, self.demands, strict=True)):
            time += delay
            work_at.append(time)
            if demand is not None:
                rate = rates.get(demand)
                if rate is None:
                    stops.append(step)
                    rate = demand.nominal_rate
                time += work / rate if rate > 0.0 else inf
            ends.append(time)
        return Pace(work_at, ends, stops)


class Chains:
    """The chains of a program: `of_task[i]` is that of task i, shared by tasks that share a phases tuple."""

    def __init__(
        self,
        program: Program,
        capacities: Sequence[float],
        *,
        find_private: bool,
        merge_phases: bool,
        drop_dominated: bool,
    ) -> None:
        self._capacities = capacities
        self._merge_phases = merge_phases
        self._varying = {change.resource for change in program.capacity_changes if change.time > 0.0}
        self._demands: dict[tuple[Draws, float, float], Demand] = {}
        self._uses: dict[int, tuple[Demand | None, float]] = {}  # of phases met before, by identity
        self._private = private_resources(program) - self._varying if find_private else frozenset()
        runs = {id(task.phases): task.phases for task in program.tasks}
        chains = {key: self._chain(phases) for key, phases in runs.items()}
        self.of_task: list[Chain] = [chains[id(task.phases)] for task in program.tasks]
        if drop_dominated:
            self._drop_dominated(chains.values())

    def _drop_dominated(self, chains: Iterable[Chain]) -> None:
        demands = self._demands.values()
        gone = dominated([demand.draws for demand in demands], self._capacities, self._varying)
        if gone:
            for demand in demands:
                demand.set_draws(tuple([draw for draw in demand.draws if draw[0] not in gone]))
            for chain in chains:
                chain.resources = tuple([r for r in chain.resources if r not in gone])

    def _chain(self, phases: tuple[Phase, ...]) -> Chain:
        phase_ends: list[float] = []
        chain = Chain(phases, phase_ends)
        used: set[int] = set()
        uses, merge = self._uses, self._merge_phases
        last: Demand | None = None
        delay = end = 0.0  # the delay not yet in a step, and the coordinate reached
        for phase in phases:
            use = uses.get(id(phase))
            if use is None:
                use = uses[id(phase)] = self._use(phase)
            demand, seconds = use
            latency = phase.latency
            work_at = end + latency
            end = work_at + seconds
            phase_ends.append(end)
            if demand is None:
                delay += latency + seconds
                if not merge and delay > 0.0:
                    chain.add_step(delay, 0.0, None, end, end)
                    delay, last = 0.0, None
                continue
            delay += latency
            if merge and demand is last and delay == 0.0:
                chain.works[-1] += phase.work
                chain.ends[-1] = end
            else:
                chain.add_step(delay, phase.work, demand, work_at, end)
                used.update(demand.resources)
                delay, last = 0.0, demand
        if delay > 0.0 or not chain.ends:
            chain.add_step(delay, 0.0, None, end, end)
        if used:
            chain.resources = tuple(sorted(used))
            chain.varies = not self._varying.isdisjoint(used)
        return chain

    def _use(self, phase: Phase) -> tuple[Demand | None, float]:
        """The phase's demand on shared resources, or None, and the nominal seconds its work takes."""
        work = phase.work
        if work == 0.0:
            return None, 0.0
        private, capacities, cap, shared = self._private, self._capacities, phase.cap, phase.draws
        if private or 0.0 in [amount for _, amount in shared]:
            for resource, amount in phase.draws:
                if resource in private and amount > 0.0:
                    cap = min(cap, capacities[resource] / amount)
            shared = tuple([draw for draw in phase.draws if draw[0] not in private and draw[1] > 0.0])
        if not shared:
            return None, work / cap
        key = (shared, cap, phase.weight)
        demand = self._demands.get(key)
        if demand is None:
            nominal = alone(capacities, shared, cap)
            if not 0.0 < nominal < inf and not self._varying.isdisjoint(r for r, _ in shared):
                nominal = 1.0  # any scale will do while there is none of its own: see `Chain.varies`
            demand = self._demands[key] = Demand(len(self._demands), shared, cap, phase.weight, nominal)
        return demand, work / demand.nominal_rate


def private_resources(program: Program) -> frozenset[int]:
    """Resources whose users all have a lane in common, and so never use it at the same time."""
    runs = {(task.lanes, id(task.phases)): task.phases for task in program.tasks}
    common: dict[int, frozenset[int]] = {}
    for (lanes, _), phases in runs.items():
        draws = {phase.draws for phase in phases if phase.work > 0.0}
        for resource in {resource for drawn in draws for resource, amount in drawn if amount > 0.0}:
            before = common.get(resource)
            common[resource] = frozenset(lanes) if before is None else before.intersection(lanes)
    return frozenset(resource for resource, lanes in common.items() if lanes)
