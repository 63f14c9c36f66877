"""Which running tasks have their resources to themselves, and which share them?

A task alone on all the resources of its whole chain is one event: its end, from the sums of its steps. When
another task starts that touches one of them, the chain is *dispersed*: taken up at its present place, and
run step by step in the fluid network. When it is alone again, what is left is *gathered* into one event.
Both are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import inf

from simulator.engine.clock import Alarm, Callbacks, Clock
from simulator.engine.fair_sharing import alone
from simulator.engine.network import ROUNDING, Component, Flow, Network


class Sharing:
    """All running tasks that draw on shared resources."""

    def __init__(
        self,
        clock: Clock,
        capacities: list[float],
        on_end: Callable[[Flow], None],
        on_change: Callable[[], None],
        *,
        solo_chains: bool,
        incremental: bool,
        cache: bool,
    ) -> None:
        """`on_end(flow)` is called when a flow's task has ended, `on_change()` when `settle` is needed."""
        self.network = Network(clock, capacities, self._on_component, incremental=incremental, cache=cache)
        self._clock = clock
        self._capacities = capacities
        self._epoch = 0  # number of capacity changes so far
        self._end = on_end
        self._on_change = on_change
        self._solo_chains = solo_chains
        self._solo_callbacks: Callbacks = [self._on_solo_end]
        self._delay_callbacks: Callbacks = [self._on_delay_end]
        self._touching: list[set[Flow]] = [
            set() for _ in capacities
        ]  # never iterated in an order that matters
        self._owner: list[Flow | None] = [None] * len(capacities)  # the flow that has it to itself
        self._newcomers: list[Flow] = []
        self._perhaps_alone: dict[Flow, None] = {}

    def admit(self, flow: Flow) -> None:
        """A task starts; how it runs is decided when all starts of this instant are known."""
        for resource in flow.chain.resources:
            self._touching[resource].add(flow)
        self._newcomers.append(flow)

    def settle(self) -> None:
        """Brings everything in line with the starts, ends and capacity changes of this instant."""
        if self._newcomers:
            newcomers, self._newcomers = self._newcomers, []
            for flow in newcomers:
                if self._is_alone(flow):
                    self._go_solo(flow, 0.0)
                else:
                    self._disperse_owners(flow.chain.resources)
                    self._advance(flow, 0)
        if self._perhaps_alone:
            candidates, self._perhaps_alone = self._perhaps_alone, {}
            for flow in candidates:
                if not flow.is_solo and self._is_alone(flow):
                    self._gather(flow)
        if self.network.has_changed:
            self.network.solve()

    def set_capacity(self, resource: int, capacity: float) -> None:
        """The capacity of `resource` (units per second) changes now."""
        for flow in sorted(self._touching[resource], key=lambda flow: flow.task):
            if flow.is_solo:
                self._disperse(flow)
            self._perhaps_alone[flow] = None
        self._epoch += 1
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

    def _go_solo(self, flow: Flow, place: float) -> None:
        """From the solo coordinate `place` on, `flow` is one event."""
        now = self._clock.now
        chain = flow.chain
        flow.is_solo = True
        flow.origin = now - place
        finish = max(flow.origin + chain.solo_ends[-1], now)
        flow.alarm = Alarm(self._solo_callbacks, flow)
        self._clock.at(finish, flow.task, flow.alarm)
        for resource in chain.resources:
            self._owner[resource] = flow

    def _gather(self, flow: Flow) -> None:
        """A flow in the delay or the work of a step goes solo from there."""
        now, chain, step = self._clock.now, flow.chain, flow.step
        demand = chain.demands[step]
        if flow.alarm is not None:
            left = flow.finish - now
            flow.note(now, chain.work_at[step] - left)
            self._go_solo(flow, chain.solo_work_at[step] - left)
        elif demand is not None:
            left = flow.left_at(now)
            flow.note(now, flow.coordinate(left))
            self.network.leave(flow, demand)
            rate = alone(self._capacities, demand.draws, demand.cap)
            self._go_solo(flow, chain.solo_ends[step] - left / rate)

    def _disperse_owners(self, resources: tuple[int, ...]) -> None:
        for resource in resources:
            owner = self._owner[resource]
            if owner is not None:
                self._disperse(owner)

    def _disperse(self, flow: Flow) -> None:
        """A solo flow goes on step by step from its present place."""
        now, chain = self._clock.now, flow.chain
        elapsed = now - flow.origin
        step = min(bisect_right(chain.solo_ends, elapsed), len(chain.ends) - 1)
        self._log_solo(flow, step)
        flow.is_solo, flow.step = False, step
        for resource in chain.resources:
            self._owner[resource] = None
        demand = chain.demands[step]
        delay = chain.solo_work_at[step] - elapsed
        if delay > 0.0 or demand is None:
            flow.note(now, chain.work_at[step] - delay)
            self._wait(flow, max(delay, 0.0))
        else:
            rate = alone(self._capacities, demand.draws, demand.cap)
            seconds = chain.solo_ends[step] - elapsed
            left = min(seconds * rate, chain.works[step]) if seconds > now * ROUNDING else 0.0
            flow.alarm = None
            self.network.join(flow, demand, left)

    def _log_solo(self, flow: Flow, until: int) -> None:
        """Notes the steps passed alone, whose pace was not the nominal one if capacities vary."""
        chain = flow.chain
        if not (chain.varies and flow.is_logged):
            return
        since = flow.log[-1][0] if flow.log else -inf
        for step in range(flow.step, until):
            for at, coordinate in (
                (flow.origin + chain.solo_work_at[step], chain.work_at[step]),
                (flow.origin + chain.solo_ends[step], chain.ends[step]),
            ):
                if at >= since:
                    flow.note(at, coordinate)
        if until < len(chain.ends) and self._clock.now >= flow.origin + chain.solo_work_at[until] >= since:
            flow.note(flow.origin + chain.solo_work_at[until], chain.work_at[until])

    def _advance(self, flow: Flow, step: int, *, is_delay_over: bool = False) -> None:
        """`flow` goes on with the delay of `step`, or with its work if the delay is over."""
        chain = flow.chain
        for flow.step in range(step, len(chain.ends)):
            delay, demand = chain.delays[flow.step], chain.demands[flow.step]
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
        for resource in flow.chain.resources:
            touching = self._touching[resource]
            touching.remove(flow)
            self._owner[resource] = None
            if len(touching) == 1:
                (other,) = touching
                self._perhaps_alone[other] = None
        self._perhaps_alone.pop(flow, None)
        self._end(flow)

    def _on_solo_end(self, alarm: Alarm) -> None:
        flow: Flow = alarm.target
        if flow.alarm is alarm:
            self._log_solo(flow, len(flow.chain.ends))
            self._leave(flow)
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
        for flow in sorted(ended, key=lambda flow: flow.task) if len(ended) > 1 else ended:
            demand = flow.chain.demands[flow.step]
            if demand is not None:
                self.network.leave(flow, demand)
                self._advance(flow, flow.step + 1)
        self._on_change()
