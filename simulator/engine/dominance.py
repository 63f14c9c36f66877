"""Which resources can never be the limit, because another one with the same users always is first?

If every demand that draws on resource a draws at least as large a share of resource b's capacity, then a is never
fuller than b, whatever the rates: it drops out of every sharing problem. The links of a path that always carry the
same flows come down to the narrowest of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from simulator.program.program import Draws


def dominated(draws: Sequence[Draws], capacities: Sequence[float], kept: Collection[int]) -> frozenset[int]:
    """Resources that no allocation to `draws` (of all demands there are) can fill before another one is full.

    Only resources with the same users are compared, and those of `kept` (whose capacity may change) not at all. Of
    resources with equal shares, the one with the lowest id stays.
    """
    users: dict[int, list[int]] = {}
    shares: dict[int, list[float]] = {}
    for demand, drawn in enumerate(draws):
        for resource, amount in drawn:
            if resource not in kept and capacities[resource] > 0.0:
                users.setdefault(resource, []).append(demand)
                shares.setdefault(resource, []).append(amount / capacities[resource])
    alike: dict[tuple[int, ...], list[int]] = {}
    for resource in sorted(users):
        alike.setdefault(tuple(users[resource]), []).append(resource)
    dropped: set[int] = set()
    for resources in alike.values():
        if len(resources) > 1:
            dropped.update(_dominated_among(resources, shares))
    return frozenset(dropped)


def _dominated_among(resources: Sequence[int], shares: dict[int, list[float]]) -> list[int]:
    """Of resources with the same users, those whose shares are nowhere larger than another's."""
    dropped = []
    staying: list[list[float]] = []
    for resource in sorted(resources, key=lambda resource: -sum(shares[resource])):
        mine = shares[resource]
        if any(all(a <= b for a, b in zip(mine, theirs, strict=True)) for theirs in staying):
            dropped.append(resource)
        else:
            staying.append(mine)
    return dropped
