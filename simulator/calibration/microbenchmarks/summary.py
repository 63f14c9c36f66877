"""What do repeated measurements say: the median, how sure it is, and which repeats are outliers?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

OUTLIER_SPREADS = 5.0
NORMAL_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True)
class Summary:
    """`low` and `high` bound the median with about 95 % confidence; `variation` is a robust standard deviation over
    the median; `outliers` lists the repeats that lie more than OUTLIER_SPREADS such deviations away."""

    median: float
    low: float
    high: float
    variation: float
    num_repeats: int
    outliers: tuple[int, ...]


def summarise(repeats: Sequence[float]) -> Summary:
    """Summary of positive times. Raises ValueError if there are none."""
    if not repeats:
        raise ValueError("no repeats to summarise")
    middle = median(repeats)
    spread = NORMAL_MAD * median(abs(value - middle) for value in repeats)
    limit = OUTLIER_SPREADS * max(
        spread, 1e-3 * middle
    )  # identical repeats must not make every other one odd
    low, high = _median_bounds(sorted(repeats))
    return Summary(
        median=middle,
        low=low,
        high=high,
        variation=spread / middle if middle else 0.0,
        num_repeats=len(repeats),
        outliers=tuple(i for i, value in enumerate(repeats) if abs(value - middle) > limit),
    )


def _median_bounds(ordered: Sequence[float]) -> tuple[float, float]:
    """Order statistics between which the true median lies with at least 95 % probability, whatever the distribution.

    The number of values below the median is binomial (n, 1/2). Too few values (n < 6) give their whole range.
    """
    n = len(ordered)
    rank, tail = 0, 0.5**n
    while rank < (n - 1) // 2 and tail + math.comb(n, rank + 1) * 0.5**n <= 0.025:
        rank += 1
        tail += math.comb(n, rank) * 0.5**n
    return ordered[rank], ordered[n - 1 - rank]
