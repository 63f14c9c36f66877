"""What does a task's run of phases come down to? Steps: a delay with nothing shared, then shared work.

The engine only meets steps. Two savings are made here, both exact:

- *private*: if all tasks that draw on a resource have a lane in common, one at a time uses it, and it limits
  that one like a cap. Work that draws on private resources only takes a time known in advance: it becomes
  part of a delay.
- *merge_phases*: consecutive phases with the same draws, cap and weight and no latency between are one step,
  and consecutive delays are one delay.

Where a phase begins and ends is kept as a coordinate: seconds since the task started, had it run alone at
the initial capacities. Time as a function of the coordinate is piecewise linear, which is how `timeline`
finds the phases again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from simulator.engine.fair_sharing import alone
from simulator.program.program import Draws, Phase, Program

if TYPE_CHECKING:
    from simulator.engine.network import Component, Flow


class Demand:
    """One way of drawing on shared resources; work in progress with the same demand runs at the same rate."""

    __slots__ = ("cap", "component", "draws", "flows", "index", "mark", "nominal_rate", "resources", "weight")

    def __init__(self, index: int, draws: Draws, cap: float, weight: float, nominal_rate: float) -> None:
        self.index = index
        self.draws = draws
        self.resources = tuple(resource for resource, _ in draws)
        self.cap = cap
        self.weight = weight
        self.nominal_rate = nominal_rate
        self.flows: dict[Flow, None] = {}  # the work in progress, in order of arrival
        self.component: Component | None = None
        self.mark = 0


@dataclass(slots=True)
class Chain:
    """A run of phases as steps. Step k: `delays[k]` seconds, then `works[k]` units of `demands[k]`.

    `work_at[k]` and `ends[k]` are the coordinates at which its work begins and ends; `phase_ends` and
    `phase_work_at` are those of the original phases.
    """

    phases: tuple[Phase, ...]
    delays: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    demands: list[Demand | None] = field(default_factory=list)
    work_at: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    phase_work_at: list[float] = field(default_factory=list)
    phase_ends: list[float] = field(default_factory=list)
    resources: tuple[int, ...] = ()
    """Shared resources that any step draws on."""
    varies: bool = False
    """Whether the capacity of one of them changes at some time."""
    solo_work_at: list[float] = field(default_factory=list)
    solo_ends: list[float] = field(default_factory=list)
    solo_epoch: int = -1
    """Like `work_at` and `ends`, at the capacities after that many changes; the same unless it `varies`."""

    def time_alone(self, capacities: Sequence[float], epoch: int) -> float:
        """Seconds it takes alone after `epoch` capacity changes; infinite if it would stall."""
        if self.varies and self.solo_epoch != epoch:
            self.solo_epoch = epoch
            self._tabulate(capacities)
        return self.solo_ends[-1]

    def _tabulate(self, capacities: Sequence[float]) -> None:
        self.solo_work_at, self.solo_ends = [], []
        time = 0.0
        for delay, work, demand in zip(self.delays, self.works, self.demands, strict=True):
            time += delay
            self.solo_work_at.append(time)
            if demand is not None:
                rate = alone(capacities, demand.draws, demand.cap)
                time += work / rate if rate > 0.0 else inf
            self.solo_ends.append(time)


class Chains:
    """The chains of a program: `of_task[i]` is that of task i, shared by tasks that share a phases tuple."""

    def __init__(
        self, program: Program, capacities: Sequence[float], *, find_private: bool, merge_phases: bool
    ) -> None:
        self._capacities = capacities
        self._merge_phases = merge_phases
        self._varying = {change.resource for change in program.capacity_changes if change.time > 0.0}
        self._demands: dict[tuple[Draws, float, float], Demand] = {}
        self._private = private_resources(program) - self._varying if find_private else frozenset()
        chains: dict[int, Chain] = {}
        self.of_task: list[Chain] = []
        for task in program.tasks:
            chain = chains.get(id(task.phases))
            if chain is None:
                chain = chains[id(task.phases)] = self._chain(task.phases)
            self.of_task.append(chain)

    def _chain(self, phases: tuple[Phase, ...]) -> Chain:
        chain = Chain(phases)
        delay = coordinate = 0.0
        for phase in phases:
            demand, fixed = self._demand(phase)
            at = coordinate + phase.latency
            chain.phase_work_at.append(at)
            if demand is None:
                delay += phase.latency + fixed
                coordinate = at + fixed
            else:
                delay += phase.latency
                coordinate = at + phase.work / demand.nominal_rate
                if self._merge_phases and delay == 0.0 and chain.demands and chain.demands[-1] is demand:
                    chain.works[-1] += phase.work
                    chain.ends[-1] = coordinate
                else:
                    self._add_step(chain, delay, phase.work, demand, at, coordinate)
                delay = 0.0
            if not self._merge_phases and delay > 0.0:
                self._add_step(chain, delay, 0.0, None, coordinate, coordinate)
                delay = 0.0
            chain.phase_ends.append(coordinate)
        if delay > 0.0 or not chain.ends:
            self._add_step(chain, delay, 0.0, None, coordinate, coordinate)
        used = {resource for demand in chain.demands if demand for resource in demand.resources}
        chain.resources = tuple(sorted(used))
        chain.varies = not self._varying.isdisjoint(used)
        chain.solo_work_at, chain.solo_ends = chain.work_at, chain.ends
        return chain

    @staticmethod
    def _add_step(
        chain: Chain, delay: float, work: float, demand: Demand | None, work_at: float, end: float
    ) -> None:
        chain.delays.append(delay)
        chain.works.append(work)
        chain.demands.append(demand)
        chain.work_at.append(work_at)
        chain.ends.append(end)

    def _demand(self, phase: Phase) -> tuple[Demand | None, float]:
        """The phase's demand on shared resources, or None and the seconds its work takes."""
        if phase.work == 0.0:
            return None, 0.0
        private, capacities, cap, shared = self._private, self._capacities, phase.cap, []
        for draw in phase.draws:
            resource, amount = draw
            if amount == 0.0:
                continue
            if resource in private:
                cap = min(cap, capacities[resource] / amount)
            else:
                shared.append(draw)
        if not shared:
            return None, phase.work / cap
        draws = tuple(shared)
        key = (draws, cap, phase.weight)
        demand = self._demands.get(key)
        if demand is None:
            nominal = alone(capacities, draws, cap)
            if not 0.0 < nominal < inf and not self._varying.isdisjoint(r for r, _ in draws):
                nominal = 1.0  # any scale will do while there is none of its own: see `Chain.varies`
            demand = self._demands[key] = Demand(len(self._demands), draws, cap, phase.weight, nominal)
        return demand, 0.0


def private_resources(program: Program) -> frozenset[int]:
    """Resources whose users all have a lane in common, and so never use it at the same time."""
    drawn_by: dict[int, tuple[int, ...]] = {}
    common: dict[int, frozenset[int]] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for task in program.tasks:
        key = (id(task.phases), task.lanes)
        if key in seen:
            continue
        seen.add(key)
        drawn = drawn_by.get(id(task.phases))
        if drawn is None:
            drawn = tuple({r for phase in task.phases if phase.work > 0.0 for r, a in phase.draws if a > 0.0})
            drawn_by[id(task.phases)] = drawn
        for resource in drawn:
            lanes = common.get(resource)
            common[resource] = lanes.intersection(task.lanes) if lanes is not None else frozenset(task.lanes)
    return frozenset(resource for resource, lanes in common.items() if lanes)
