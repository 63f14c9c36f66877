"""At which rate does each piece of work in progress run now, and which ends next? The fluid network.

Between changes every flow advances at a constant rate. When flows join, leave or capacities change, the
connected component they belong to (flows joined by shared resources) is solved again, and one alarm is set
for its next end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from simulator.engine.chains import Chain, Demand, Pace
from simulator.engine.clock import Alarm, Callbacks, Clock
from simulator.engine.fair_sharing import max_min

ROUNDING = 1e-14
"""Instants that differ by less than this share of the time are the same.

Else work that ends as the capacity falls to zero might be left with a last bit to do, for ever.
"""


class Flow:
    """A running task that draws on shared resources: where it is in its chain, and how fast it advances.

    Either at a known `pace` to its end (`alarm`; it would have begun at `origin`), or in the delay of step `step`
    (`alarm` and `finish` are the end of the delay), or working on it in the network (no alarm; `remaining` units were
    left at time `updated`). `delay`: seconds left of one, between two of these. `beside`: the pace that it last had
    beside others, or would have had but for its present step.
    """

    __slots__ = (
        "alarm",
        "beside",
        "chain",
        "delay",
        "finish",
        "is_logged",
        "log",
        "origin",
        "pace",
        "rate",
        "remaining",
        "step",
        "task",
        "updated",
    )

    def __init__(self, task: int, chain: Chain, is_logged: bool) -> None:
        self.task = task
        self.chain = chain
        self.is_logged = is_logged
        self.step = 0
        self.pace: Pace | None = None
        self.beside: Pace | None = None
        self.delay = 0.0
        self.alarm: Alarm | None = None
        self.origin = 0.0
        self.remaining = 0.0
        self.rate = -1.0  # negative: not set yet
        self.updated = 0.0
        self.finish = inf
        self.log: list[tuple[float, float]] | None = None

    def note(self, time: float, coordinate: float) -> None:
        """Remembers that the pace changed here, if the phases or the rates will be asked for."""
        if not self.is_logged:
            return
        if self.log is None:
            self.log = [(time, coordinate)]
        else:
            self.log.append((time, max(coordinate, self.log[-1][1])))

    def left_at(self, now: float) -> float:
        """Work of the present step that remains at `now`."""
        if self.rate <= 0.0:
            return self.remaining
        if self.finish <= now * (1.0 + ROUNDING):
            return 0.0
        return max(self.remaining - self.rate * (now - self.updated), 0.0)

    def coordinate(self, left: float) -> float:
        """The place in the chain at which `left` units of the present step remain."""
        chain, step = self.chain, self.step
        demand = chain.demands[step]
        if demand is None or left >= chain.works[step]:
            return chain.work_at[step]
        return chain.ends[step] - left / demand.nominal_rate


class Component:
    """Demands joined by shared resources, solved together until something changes."""

    __slots__ = ("demands", "is_current")

    def __init__(self, demands: list[Demand]) -> None:
        self.demands = demands
        self.is_current = True


class Network:
    """The work in progress on shared resources."""

    def __init__(
        self,
        clock: Clock,
        capacities: list[float],
        on_end: Callable[[Any], None],
        *,
        incremental: bool,
        cache: bool,
    ) -> None:
        self.capacities = capacities
        self.num_solves = 0
        self._clock = clock
        self.callbacks: Callbacks = [on_end]
        self._incremental = incremental
        self._cache: dict[tuple[tuple[Demand, int], ...], list[float]] | None = {} if cache else None
        self._users: list[dict[Demand, None]] = [{} for _ in capacities]
        self._changed: list[int] = []  # resources from which the affected components are reached
        self._mark = 0  # number of the present `solve`
        self._marks = [0] * len(capacities)  # the last in which each resource was met

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def join(self, flow: Flow, demand: Demand, work: float) -> None:
        """`flow` begins `work` units of `demand` now; its rate is set by the next `solve`."""
        flow.remaining, flow.rate, flow.updated, flow.finish = work, -1.0, self._clock.now, inf
        if not demand.flows:
            for resource in demand.resources:
                self._users[resource][demand] = None
        demand.flows[flow] = None
        self._changed.append(demand.resources[0])

    def leave(self, flow: Flow, demand: Demand) -> None:
        """`flow` is no longer at work on `demand`, done or not."""
        del demand.flows[flow]
        if demand.component is not None:
            demand.component.is_current = False
        if demand.flows:
            self._changed.append(demand.resources[0])
        else:
            demand.component = None
            for resource in demand.resources:
                del self._users[resource][demand]
            self._changed.extend(demand.resources)

    def set_capacity(self, resource: int, capacity: float) -> None:
        self.capacities[resource] = capacity
        self._changed.append(resource)
        if self._cache is not None:
            self._cache.clear()

    def solve(self) -> Iterable[int]:
        """Sets the rates of all flows affected by what has changed since the last time; returns their resources."""
        changed, self._changed = self._changed, []
        if not self._incremental:
            resources = range(len(self._users))
            everything = {demand for resource in resources for demand in self._users[resource]}
            if everything:
                self._solve_together(sorted(everything, key=lambda demand: demand.index))
            return resources
        self._mark += 1
        met: list[int] = []
        for resource in changed:
            if self._marks[resource] != self._mark:
                front = [resource]
                component = self._component(front)
                met += front
                if component:
                    self._solve_together(component)
        return met

    def reached(self, resources: Iterable[int]) -> list[Demand]:
        """Demands at work that hang together with any of `resources`, by index."""
        self._mark += 1
        return self._component(list(resources))

    def _component(self, front: list[int]) -> list[Demand]:
        """Demands that hang together with the resources `front`, to which all others met are added.

        By index; without those that were met before under the present mark.
        """
        mark, marks, users = self._mark, self._marks, self._users
        for resource in front:
            marks[resource] = mark
        found: list[Demand] = []
        for resource in front:  # which grows
            for demand in users[resource]:
                if demand.mark != mark:
                    demand.mark = mark
                    found.append(demand)
                    for other in demand.resources:
                        if marks[other] != mark:
                            marks[other] = mark
                            front.append(other)
        if len(found) > 1:
            found.sort(key=_index)
        return found

    def _solve_together(self, demands: list[Demand]) -> None:
        component = Component(demands)
        now = self._clock.now
        soonest, first = inf, 0
        rates = self.rates([(demand, len(demand.flows)) for demand in demands])
        for demand, rate in zip(demands, rates, strict=True):
            if demand.component is not None:
                demand.component.is_current = False
            demand.component = component
            for flow in demand.flows:
                if flow.rate != rate:
                    self._set_rate(flow, rate, now)
                if flow.finish <= soonest and (flow.finish < soonest or flow.task < first):
                    soonest, first = flow.finish, flow.task
        if soonest < inf:
            self._clock.at(soonest, first, Alarm(self.callbacks, component))

    def _set_rate(self, flow: Flow, rate: float, now: float) -> None:
        flow.remaining = flow.left_at(now)
        flow.updated = now
        flow.rate = rate
        if flow.remaining == 0.0:
            flow.finish = now
        else:
            flow.finish = now + flow.remaining / rate if rate > 0.0 else inf
        if flow.is_logged:
            flow.note(now, flow.coordinate(flow.remaining))

    def rates(self, together: list[tuple[Demand, int]]) -> list[float]:
        """Rates of the flows of each (demand, how many); n flows of one demand are one that draws n times as much."""
        if self._cache is None:
            return self._filled(together)
        key = tuple(together)
        rates = self._cache.get(key)
        if rates is None:
            rates = self._cache[key] = self._filled(together)
        return rates

    def _filled(self, together: list[tuple[Demand, int]]) -> list[float]:
        self.num_solves += 1
        draws = [
            demand.draws
            if count == 1
            else tuple((resource, amount * count) for resource, amount in demand.draws)
            for demand, count in together
        ]
        weights, caps = [one.weight for one, _ in together], [one.cap for one, _ in together]
        return max_min(self.capacities, draws, weights, caps)


def _index(demand: Demand) -> int:
    return demand.index
