"""How fast a ring runs over directly wired GPUs: as many lanes as disjoint rings can be laid through them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise, permutations

LARGEST_SEARCH = 8
"""Most members for which rings are searched; beyond it, and where none closes, the thinnest member decides."""


def ring_lanes(links: Iterable[tuple[int, int, int]], members: Sequence[int]) -> float:
    """Lanes per direction that a ring collective among `members` can use, over links (GPU, GPU, lanes).

    The largest number of rings through all members such that no lane is used twice in one direction; every ring
    runs both ways round. Where no ring closes, one that passes through members twice is as wide as the thinnest.
    Raises ValueError where a member has no link to any other.
    """
    inside = set(members)
    lanes = {(min(a, b), max(a, b)): n for a, b, n in links if a in inside and b in inside}
    degree = {m: sum(n for pair, n in lanes.items() if m in pair) for m in members}
    if len(members) > 1 and min(degree.values()) == 0:
        raise ValueError(f"GPU {min(degree, key=lambda m: degree[m])} has no link to the rest of its group")
    if len(members) == 2:
        return float(lanes[min(members), max(members)])
    rings = 0
    if len(members) <= LARGEST_SEARCH:
        rings = _most_rings(tuple(sorted(lanes.items())), tuple(sorted(inside)))
    return 2.0 * rings if rings else float(min(degree.values()))


@lru_cache(maxsize=256)
def _most_rings(lanes: tuple[tuple[tuple[int, int], int], ...], members: tuple[int, ...]) -> int:
    """The most Hamiltonian cycles whose edges fit into the lanes together."""
    known = dict(lanes)
    first, *others = members
    cycles = []
    for order in permutations(others):
        if order[0] < order[-1]:  # each cycle once, not once per direction
            path = (first, *order, first)
            edges = [(min(a, b), max(a, b)) for a, b in pairwise(path)]
            if all(edge in known for edge in edges):
                cycles.append(edges)
    bound = min(sum(n for pair, n in lanes if m in pair) // 2 for m in members)
    return _pack(cycles, known, 0, bound)


def _pack(
    cycles: list[list[tuple[int, int]]], free: dict[tuple[int, int], int], start: int, bound: int
) -> int:
    """Most cycles from `start` on that fit into `free`, by trying each; stops at `bound`."""
    best = 0
    for index in range(start, len(cycles)):
        if all(free[edge] for edge in cycles[index]):
            left = {**free}
            for edge in cycles[index]:
                left[edge] -= 1
            best = max(best, 1 + _pack(cycles, left, index, bound - 1))
            if best >= bound:
                break
    return best
