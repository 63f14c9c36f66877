"""How many micro-batches does each data-parallel replica run where replicas are not equally fast?

even: the same for all. proportional: by the peak of their slowest GPU. balanced: so that the last to finish finishes as
early as can be. Or as given. VirtualFlow's virtual nodes (Or et al. 2020), OmniLearn's batches per worker
(Tyagi and Sharma 2025).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def proportional(total: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """`total` in proportion to `speeds`; rounding leaves the rest to the largest remainders, and no one without any."""
    exact = [speed / sum(speeds) * total for speed in speeds]
    counts = [int(share) for share in exact]
    for index in sorted(range(len(counts)), key=lambda i: counts[i] - exact[i])[: total - sum(counts)]:
        counts[index] += 1
    while min(counts) == 0:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(0)] += 1
    return tuple(counts)


def balanced(total: int, seconds: Sequence[float]) -> tuple[int, ...]:
    """`total` so that the largest count x seconds is least, at least one each.

    One after the other to whoever would then finish first: exact, since giving to anyone else ends later.
    """
    counts = [1] * len(seconds)
    queue = [(2.0 * time, index) for index, time in enumerate(seconds)]
    heapq.heapify(queue)
    for _ in range(total - len(seconds)):
        _, index = heapq.heappop(queue)
        counts[index] += 1
        heapq.heappush(queue, ((counts[index] + 1) * seconds[index], index))
    return tuple(counts)
