"""At which rate does each piece of work in progress run now, and which ends next? The fluid network.

Between changes every flow advances at a constant rate. When flows join, leave or capacities change, the
connected component they belong to (flows joined by shared resources) is solved again, and one alarm is set
for its next end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from simulator.engine.chains import Chain, Demand
from simulator.engine.clock import Alarm, Clock
from simulator.engine.fair_sharing import max_min

ROUNDING = 1e-14
"""Instants that differ by less than this share of the time are the same.

Else work that ends as the capacity falls to zero might be left with a last bit to do, for ever.
"""


class Flow:
    """A running task that draws on shared resources: where it is in its chain, and how fast it advances.

    Either alone (`is_solo`: `alarm` is its end, `origin` the time at which its solo coordinate was zero), or
    in the delay of step `step` (`alarm` and `finish` are the end of the delay), or working on it in the
    network (no alarm; `remaining` units were left at time `updated`).
    """

    __slots__ = (
        "alarm",
        "chain",
        "finish",
        "is_logged",
        "is_solo",
        "log",
        "origin",
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
        self.is_solo = False
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
        self._callbacks = [on_end]
        self._incremental = incremental
        self._cache: dict[tuple[int, ...], list[float]] | None = {} if cache else None
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
            for resource in demand.resources:
                del self._users[resource][demand]
            self._changed.extend(demand.resources)

    def set_capacity(self, resource: int, capacity: float) -> None:
        self.capacities[resource] = capacity
        self._changed.append(resource)
        if self._cache is not None:
            self._cache.clear()

    def solve(self) -> None:
        """Sets the rates of all flows affected by what has changed since the last time."""
        changed, self._changed = self._changed, []
        if not self._incremental:
            changed = [resource for resource, users in enumerate(self._users) if users]
            everything = {demand for resource in changed for demand in self._users[resource]}
            if everything:
                self._solve_together(sorted(everything, key=lambda demand: demand.index))
            return
        self._mark += 1
        for resource in changed:
            if self._marks[resource] != self._mark:
                component = self._component(resource)
                if component:
                    self._solve_together(component)

    def _component(self, resource: int) -> list[Demand]:
        """Demands connected to `resource` and not met before in this `solve`, by index."""
        mark, marks, users = self._mark, self._marks, self._users
        marks[resource] = mark
        found: list[Demand] = []
        front = [resource]
        while front:
            for demand in users[front.pop()]:
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
        for demand, rate in zip(demands, self._rates(demands), strict=True):
            if demand.component is not None:
                demand.component.is_current = False
            demand.component = component
            for flow in demand.flows:
                if flow.rate != rate:
                    self._set_rate(flow, rate, now)
                if flow.finish <= soonest and (flow.finish < soonest or flow.task < first):
                    soonest, first = flow.finish, flow.task
        if soonest < inf:
            self._clock.at(soonest, first, Alarm(self._callbacks, component))

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

    def _rates(self, demands: list[Demand]) -> Iterable[float]:
        """Rates of the flows of each demand; n flows of one demand are one that draws n times as much."""
        if self._cache is None:
            return self._filled(demands)
        key = tuple([x for demand in demands for x in (demand.index, len(demand.flows))])
        rates = self._cache.get(key)
        if rates is None:
            rates = self._cache[key] = self._filled(demands)
        return rates

    def _filled(self, demands: list[Demand]) -> list[float]:
        self.num_solves += 1
        draws = [
            demand.draws
            if len(demand.flows) == 1
            else tuple((resource, amount * len(demand.flows)) for resource, amount in demand.draws)
            for demand in demands
        ]
        return max_min(self.capacities, draws, [d.weight for d in demands], [d.cap for d in demands])


def _index(demand: Demand) -> int:
    return demand.index
