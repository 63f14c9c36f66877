"""How fast does each task run when several draw on one resource? Weighted max-min, progressive filling.

All rates grow as weight x theta until a resource is full or a rate meets its cap; the tasks concerned freeze
there and the others go on growing (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2, with
weights, caps and arbitrary draws). The outcome is the one allocation in which no rate can rise without
lowering another whose rate/weight is no greater.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from simulator.program.program import Draws

INFINITY = float("inf")


def max_min(
    capacities: Sequence[float] | Mapping[int, float],
    demands: Sequence[Draws],
    weights: Sequence[float],
    caps: Sequence[float],
) -> list[float]:
    """Rates (work per second), one per demand: task i draws rate[i] x amount from each of its resources.

    `capacities[r]` >= 0 (units per second, may be infinite), amounts > 0, weights > 0, caps > 0 (may be
    infinite). A demand that nothing limits gets an infinite rate. Sums are taken in the order given, so
    equal input gives bit-equal output. Inputs are trusted: `execute` validates them.
    """
    if len(demands) == 1:
        return [alone(capacities, demands[0], caps[0])]
    rates = [-1.0] * len(demands)  # negative: still growing
    users = _users(demands)
    levels = [(_level(capacities[r], using, weights, rates), r) for r, using in users.items()]
    heapify(levels)
    ceilings = sorted(((cap / weights[i], i) for i, cap in enumerate(caps) if cap < INFINITY), reverse=True)
    changed: set[int] = set()  # resources on which someone froze since their level was last computed
    growing = len(demands)
    while growing:
        ceiling = ceilings[-1][0] if ceilings else INFINITY
        level, resource = levels[0] if levels else (INFINITY, -1)
        if ceiling <= level:
            if not ceilings:
                break
            i = ceilings.pop()[1]
            if rates[i] < 0.0:
                rates[i] = caps[i]
                growing -= 1
                changed.update(r for r, _ in demands[i])
        elif resource in changed:
            # A level never falls when others freeze below it, so an outdated one is a valid lower bound and
            # it is enough to bring the lowest up to date: few resources are ever summed again.
            changed.discard(resource)
            fresh = _level(capacities[resource], users[resource], weights, rates)
            heapreplace(levels, (fresh, resource))
        else:
            heappop(levels)
            for i, _ in users[resource]:
                if rates[i] < 0.0:
                    rates[i] = weights[i] * level
                    growing -= 1
                    changed.update(r for r, _ in demands[i])
    return [rate if rate >= 0.0 else INFINITY for rate in rates]


def alone(capacities: Sequence[float] | Mapping[int, float], draws: Draws, cap: float) -> float:
    """The rate of a task that shares nothing: its cap or its scarcest resource."""
    rate = cap
    for resource, amount in draws:
        limit = capacities[resource] / amount
        if limit < rate:
            rate = limit
    return rate


def _users(demands: Sequence[Draws]) -> dict[int, list[tuple[int, float]]]:
    users: dict[int, list[tuple[int, float]]] = {}
    for i, draws in enumerate(demands):
        for resource, amount in draws:
            if resource in users:
                users[resource].append((i, amount))
            else:
                users[resource] = [(i, amount)]
    return users


def _level(
    capacity: float, users: list[tuple[int, float]], weights: Sequence[float], rates: Sequence[float]
) -> float:
    """The theta at which a resource is full as its growing users go on growing; infinite if there is none.

    Summed afresh each time: subtracting the frozen from a running total would lose all digits when weights
    differ by many orders of magnitude (a kernel counts in seconds, a collective in bytes).
    """
    slack, growth = capacity, 0.0
    for i, amount in users:
        rate = rates[i]
        if rate < 0.0:
            growth += amount * weights[i]
        else:
            slack -= amount * rate
    if growth == 0.0:
        return INFINITY
    return slack / growth if slack > 0.0 else 0.0
