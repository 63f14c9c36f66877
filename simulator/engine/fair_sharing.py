"""How fast does each task run when several draw on one resource? Weighted max-min, progressive filling.

All rates grow as weight x theta until a resource is full or a rate meets its cap; the tasks concerned freeze
there and the others go on growing (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2, with weights,
caps and arbitrary draws). The outcome is the one allocation in which no rate can rise without lowering another
whose rate/weight is no greater.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from simulator.program.program import Draws

INFINITY = float("inf")
CANCELLED = 1e-3
"""A running difference that has fallen below this share of the sum it started from is summed afresh."""


def max_min(
    capacities: Sequence[float] | Mapping[int, float],
    demands: Sequence[Draws],
    weights: Sequence[float],
    caps: Sequence[float],
) -> list[float]:
    """Rates (work per second), one per demand: task i draws rate[i] x amount from each of its resources.

    `capacities[r]` >= 0 (units per second, may be infinite), amounts > 0, weights > 0, caps > 0 (may be
    infinite). A demand that nothing limits gets an infinite rate. Sums are taken in the order given, so equal
    input gives bit-equal output. Inputs are trusted: `execute` validates them.
    """
    if len(demands) == 1:
        return [alone(capacities, demands[0], caps[0])]
    rates = [-1.0] * len(demands)  # negative: still growing
    users = _users(capacities, demands, weights)
    levels = [(use.slack / use.growth, resource) for resource, use in users.items()]
    heapify(levels)
    ceilings = sorted([(cap / weights[i], i) for i, cap in enumerate(caps) if cap < INFINITY], reverse=True)
    growing = len(demands)
    while growing:
        level, resource = levels[0] if levels else (INFINITY, -1)
        if ceilings and ceilings[-1][0] <= level:
            i = ceilings.pop()[1]
            if rates[i] < 0.0:
                rates[i] = caps[i]
                growing -= 1
                _freeze(users, demands[i], weights[i], caps[i])
        elif level == INFINITY:
            break
        elif users[resource].has_changed:
            # A level never falls when others freeze below it, so an outdated one is a valid lower bound and it
            # is enough to bring the lowest up to date.
            heapreplace(levels, (users[resource].level(rates, weights), resource))
        else:
            heappop(levels)
            for i, _ in users[resource].tasks:
                if rates[i] < 0.0:
                    rates[i] = weights[i] * level
                    growing -= 1
                    _freeze(users, demands[i], weights[i], rates[i])
    return [rate if rate >= 0.0 else INFINITY for rate in rates]


def alone(capacities: Sequence[float] | Mapping[int, float], draws: Draws, cap: float) -> float:
    """The rate of a task that shares nothing: its cap or its scarcest resource."""
    rate = cap
    for resource, amount in draws:
        limit = capacities[resource] / amount
        if limit < rate:
            rate = limit
    return rate


class _Users:
    """Who draws on one resource: what the frozen leave of it, and how fast the growing fill it."""

    __slots__ = ("growth", "growth_summed", "has_changed", "num_growing", "slack", "tasks")

    def __init__(self, capacity: float) -> None:
        self.tasks: list[tuple[int, float]] = []  # (task, amount)
        self.slack = capacity
        self.growth = 0.0  # sum of amount x weight of the growing
        self.growth_summed = 0.0  # what it was when last summed
        self.num_growing = 0
        self.has_changed = False  # whether someone froze since the level was last computed

    def level(self, rates: Sequence[float], weights: Sequence[float]) -> float:
        """The theta at which it is full as its growing users go on growing; infinite if there is none."""
        self.has_changed = False
        if self.num_growing == 0:
            return INFINITY
        if self.growth < CANCELLED * self.growth_summed:
            # Weights differ by many orders of magnitude (a kernel counts seconds, a collective bytes), and what
            # is left after subtracting the large ones has few digits.
            self.growth = 0.0
            for i, amount in self.tasks:
                if rates[i] < 0.0:
                    self.growth += amount * weights[i]
            self.growth_summed = self.growth
        return self.slack / self.growth if self.slack > 0.0 else 0.0


def _users(
    capacities: Sequence[float] | Mapping[int, float], demands: Sequence[Draws], weights: Sequence[float]
) -> dict[int, _Users]:
    users: dict[int, _Users] = {}
    for i, draws in enumerate(demands):
        weight = weights[i]
        for resource, amount in draws:
            use = users.get(resource)
            if use is None:
                use = users[resource] = _Users(capacities[resource])
            use.tasks.append((i, amount))
            use.growth += amount * weight
    for use in users.values():
        use.growth_summed = use.growth
        use.num_growing = len(use.tasks)
    return users


def _freeze(users: Mapping[int, _Users], draws: Draws, weight: float, rate: float) -> None:
    for resource, amount in draws:
        use = users[resource]
        use.slack -= amount * rate
        use.growth -= amount * weight
        use.num_growing -= 1
        use.has_changed = True
