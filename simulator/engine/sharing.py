"""Which running tasks have their resources to themselves, and which share them?

A task alone on all the resources of its whole chain is one event: its end, from the sums of its steps. When
another task starts that touches one of them, the chain is *dispersed*: taken up at its present place. It is
one event still if it never slows down those at work beside it (see `company`), until one of them comes or goes;
else it runs step by step in the fluid network. When it is alone again, what is left is *gathered* into one
event. All are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import inf

from simulator.engine.chains import Pace
from simulator.engine.clock import Alarm, Callbacks, Clock
from simulator.engine.company import Company
from simulator.engine.network import ROUNDING, Component, Flow, Network


class Sharing:
    """All running tasks that draw on shared resources."""

    def __init__(
        self,
        clock: Clock,
        capacities: list[float],
        on_end: Callable[[int], None],
        on_change: Callable[[], None],
        *,
        solo_chains: bool,
        company: bool,
        incremental: bool,
        cache: bool,
    ) -> None:
        """`on_end(task)` is called when a flow's task has ended, `on_change()` when `settle` is needed."""
        self.network = Network(clock, capacities, self._on_component, incremental=incremental, cache=cache)
        self._clock = clock
        self._capacities = capacities
        self._epoch = 0  # number of capacity changes so far
        self._end = on_end
        self._on_change = on_change
        self._solo_chains = solo_chains
        self._has_company = company
        self._company = Company(self.network)
        self._solo_callbacks: Callbacks = [self._on_solo_end]
        self._delay_callbacks: Callbacks = [self._on_delay_end]
        self._touching: list[set[Flow]] = [
            set() for _ in capacities
        ]  # never iterated in an order that matters
        self._owner: list[Flow | None] = [None] * len(capacities)  # the flow on it that is one event
        self._newcomers: list[Flow] = []
        self.admit = self._newcomers.append
        """A task starts; how it runs is decided when all starts of this instant are known."""
        self.logs: dict[int, list[tuple[float, float]]] = {}
        """Of tasks that ended: (time, coordinate in the chain) where the pace changed, if it did."""
        self._accompanied: dict[Flow, None] = {}  # one event although others touch what they draw on
        self._undecided: dict[Flow, None] = {}  # neither one event nor in the network, until that is solved
        self._perhaps_alone: dict[Flow, None] = {}  # or beside others that it does not slow down

    def flows(self) -> set[Flow]:
        """All that run."""
        return set[Flow]().union(*self._touching)

    def settle(self) -> None:
        """Brings everything in line with the starts, ends and capacity changes of this instant."""
        newcomers = self._newcomers
        if newcomers:
            for flow in newcomers:
                for resource in flow.chain.resources:
                    self._touching[resource].add(flow)
            for flow in newcomers:
                if self._is_alone(flow):
                    self._go(flow, flow.chain.solo, 0.0)
                else:
                    self._disperse_owners(flow.chain.resources)
                    self._begin(flow)
            newcomers.clear()
        if self._perhaps_alone:
            candidates, self._perhaps_alone = self._perhaps_alone, {}
            for flow in candidates:
                if flow.pace is None and flow not in self._undecided:
                    if self._is_alone(flow):
                        self._take_out(flow)
                        self._go_on(flow, flow.chain.solo)
                    elif self._may_go_beside(flow):
                        self._take_out(flow)
                        self._undecided[flow] = None
        while True:
            if self.network.has_changed:
                met = self.network.solve()
                if self._accompanied:
                    self._review(met)
            elif self._undecided:
                flow, _ = self._undecided.popitem()
                taken = any(self._owner[resource] is not None for resource in flow.chain.resources)
                self._decide(flow, None if taken else self._company.pace(flow.chain))
            else:
                return

    def _review(self, met: Iterable[int]) -> None:
        """Those that are one event on resources where rates may have changed go on at another pace."""
        owners = {owner: None for resource in met if (owner := self._owner[resource]) in self._accompanied}
        for flow in owners:
            pace = self._company.pace(flow.chain)
            if pace is not flow.pace:
                self._take_up(flow)
                self._decide(flow, pace)

    def _decide(self, flow: Flow, beside: Pace | None) -> None:
        """One event at the pace beside others for as far as that goes; else the present step in the network."""
        flow.beside = beside
        if beside is None or beside.until(flow.step) == flow.step:
            self._enter(flow)
        else:
            self._accompanied[flow] = None
            self._go_on(flow, beside)

    def let_go(self) -> None:
        """Forgets whom to call: see `Execution.let_go`."""
        for callbacks in (self._solo_callbacks, self._delay_callbacks, self.network.callbacks):
            callbacks.clear()

    def set_capacity(self, resource: int, capacity: float) -> None:
        """The capacity of `resource` (units per second) changes now."""
        for flow in sorted(self._touching[resource], key=_task):
            if flow.pace is not None:
                self._disperse(flow)
            self._perhaps_alone[flow] = None
        self._epoch += 1
        self._company.forget()
        self.network.set_capacity(resource, capacity)
        self._on_change()

    def _is_alone(self, flow: Flow) -> bool:
        """Whether `flow` can be one event: nobody else touches its resources, and none of them is at zero."""
        if not self._solo_chains:
            return False
        touching = self._touching
        for resource in flow.chain.resources:
            if len(touching[resource]) > 1:
                return False
        return not flow.chain.varies or flow.chain.time_alone(self._capacities, self._epoch) < inf

    def _go(self, flow: Flow, pace: Pace, place: float) -> None:
        """From `place` (seconds since its start at this pace) on, `flow` is one event."""
        clock, owner = self._clock, self._owner
        now = clock.now
        flow.pace = pace
        origin = flow.origin = now - place
        finish = origin + (pace.ends[pace.until(flow.step) - 1] if pace.stops else pace.ends[-1])
        alarm = flow.alarm = Alarm(self._solo_callbacks, flow)
        clock.at(finish if finish > now else now, flow.task, alarm)
        for resource in flow.chain.resources:
            owner[resource] = flow

    def _go_on(self, flow: Flow, pace: Pace) -> None:
        """A flow that has been taken up is one event from there."""
        chain, step = flow.chain, flow.step
        work_at, end = pace.work_at[step], pace.ends[step]
        if flow.delay > 0.0 or chain.demands[step] is None:
            flow.note(self._clock.now, chain.work_at[step] - flow.delay)
            self._go(flow, pace, work_at - flow.delay)
        else:
            flow.note(self._clock.now, flow.coordinate(flow.remaining))
            self._go(flow, pace, end - flow.remaining / chain.works[step] * (end - work_at))

    def _take_out(self, flow: Flow) -> None:
        """A flow leaves the delay or the work of its step, to go on as one event."""
        demand = flow.chain.demands[flow.step]
        if flow.alarm is not None:
            flow.delay, flow.remaining = flow.finish - self._clock.now, flow.chain.works[flow.step]
        elif demand is not None:
            flow.delay, flow.remaining = 0.0, flow.left_at(self._clock.now)
            self.network.leave(flow, demand)
        flow.alarm = None

    def _disperse_owners(self, resources: tuple[int, ...]) -> None:
        for resource in resources:
            owner = self._owner[resource]
            if owner is not None:
                self._disperse(owner)

    def _begin(self, flow: Flow) -> None:
        """A flow that is not alone starts."""
        flow.delay, flow.remaining = flow.chain.delays[0], flow.chain.works[0]
        self._place(flow)

    def _disperse(self, flow: Flow) -> None:
        """A flow that was one event goes on from its present place, one way or the other."""
        self._take_up(flow)
        self._place(flow)

    def _place(self, flow: Flow) -> None:
        """What has more steps to go may be one event beside others, which is seen when they are at work."""
        if self._may_go_beside(flow):
            flow.alarm = None
            self._undecided[flow] = None
        else:
            self._enter(flow)

    def _may_go_beside(self, flow: Flow) -> bool:
        return self._has_company and flow.step + 1 < len(flow.chain.ends) and not flow.chain.varies

    def _take_up(self, flow: Flow) -> None:
        """Finds where a flow is that was one event: its step, the delay and the work left of that."""
        now, chain, pace = self._clock.now, flow.chain, flow.pace
        assert pace is not None
        elapsed = now - flow.origin
        step = min(bisect_right(pace.ends, elapsed), len(chain.ends) - 1)
        self._log(flow, pace, step)
        self._stop(flow, step)
        flow.delay = max(pace.work_at[step] - elapsed, 0.0)
        if flow.delay == 0.0:
            seconds, passing = pace.ends[step] - elapsed, pace.ends[step] - pace.work_at[step]
            flow.remaining *= min(seconds / passing, 1.0) if seconds > now * ROUNDING else 0.0

    def _stop(self, flow: Flow, step: int) -> None:
        """A flow is no longer one event, at the beginning of a step."""
        self._accompanied.pop(flow, None)
        flow.pace, flow.step = None, step
        flow.delay, flow.remaining = flow.chain.delays[step], flow.chain.works[step]
        for resource in flow.chain.resources:
            self._owner[resource] = None

    def _enter(self, flow: Flow) -> None:
        """A flow that has been taken up goes on with the delay or the work of its step."""
        demand = flow.chain.demands[flow.step]
        if flow.delay > 0.0 or demand is None:
            flow.note(self._clock.now, flow.chain.work_at[flow.step] - flow.delay)
            self._wait(flow, flow.delay)
        else:
            flow.alarm = None
            self.network.join(flow, demand, flow.remaining)

    def _log(self, flow: Flow, pace: Pace, until: int) -> None:
        """Notes the steps passed at a pace that was not the nominal one."""
        chain = flow.chain
        if not flow.is_logged or pace.ends is chain.ends:
            return
        since = flow.log[-1][0] if flow.log else -inf
        for step in range(flow.step, until):
            for at, coordinate in (
                (flow.origin + pace.work_at[step], chain.work_at[step]),
                (flow.origin + pace.ends[step], chain.ends[step]),
            ):
                if at >= since:
                    flow.note(at, coordinate)
        if until < len(chain.ends) and self._clock.now >= flow.origin + pace.work_at[until] >= since:
            flow.note(flow.origin + pace.work_at[until], chain.work_at[until])

    def _advance(self, flow: Flow, step: int, *, is_delay_over: bool = False) -> None:
        """`flow` goes on with the delay of `step`, or with its work if the delay is over."""
        chain = flow.chain
        for flow.step in range(step, len(chain.ends)):
            delay, demand = chain.delays[flow.step], chain.demands[flow.step]
            if not is_delay_over and flow.beside is not None and flow.beside.until(flow.step) > flow.step:
                flow.delay, flow.remaining = delay, chain.works[flow.step]
                self._place(flow)
                return
            if delay > 0.0 and not is_delay_over:
                flow.note(self._clock.now, chain.work_at[flow.step] - delay)
                self._wait(flow, delay)
                return
            is_delay_over = False
            if demand is not None:
                flow.alarm = None
                self.network.join(flow, demand, chain.works[flow.step])
                return
        self._leave(flow)

    def _wait(self, flow: Flow, delay: float) -> None:
        flow.finish = self._clock.now + delay
        flow.alarm = Alarm(self._delay_callbacks, flow)
        self._clock.at(flow.finish, flow.task, flow.alarm)

    def _leave(self, flow: Flow) -> None:
        """The task of `flow` has ended."""
        left: set[Flow] | None = None
        owner = self._owner
        for resource in flow.chain.resources:
            touching = self._touching[resource]
            touching.remove(flow)
            if owner[resource] is flow:
                owner[resource] = None
            if touching and (self._has_company or len(touching) == 1):
                left = touching if left is None else left | touching
        if left is not None:
            for other in sorted(left, key=_task):
                if other.pace is None:
                    self._perhaps_alone[other] = None
        if self._perhaps_alone:
            self._perhaps_alone.pop(flow, None)
        if self._accompanied:
            self._accompanied.pop(flow, None)
        flow.alarm = None
        if flow.log is not None:
            self.logs[flow.task] = flow.log
        self._end(flow.task)

    def _on_solo_end(self, alarm: Alarm) -> None:
        flow: Flow = alarm.target
        pace = flow.pace
        if flow.alarm is alarm and pace is not None:
            until = pace.until(flow.step) if pace.stops else len(pace.ends)
            if pace.ends is not flow.chain.ends:
                self._log(flow, pace, until)
            if until == len(pace.ends):
                self._leave(flow)
            else:
                self._stop(flow, until)
                self._enter(flow)
            self._on_change()

    def _on_delay_end(self, alarm: Alarm) -> None:
        flow: Flow = alarm.target
        if flow.alarm is alarm:
            self._advance(flow, flow.step, is_delay_over=True)
            self._on_change()

    def _on_component(self, alarm: Alarm) -> None:
        component: Component = alarm.target
        if not component.is_current:
            return
        now = self._clock.now
        ended = [flow for demand in component.demands for flow in demand.flows if flow.finish <= now]
        for flow in sorted(ended, key=_task) if len(ended) > 1 else ended:
            demand = flow.chain.demands[flow.step]
            if demand is not None:
                self.network.leave(flow, demand)
                self._advance(flow, flow.step + 1)
        self._on_change()


def _task(flow: Flow) -> int:
    return flow.task
