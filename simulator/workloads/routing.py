"""How unevenly do tokens fall on experts, and what does the fullest GPU of an expert group carry?

The router's choice is a distribution over experts: even, drawn at random, Zipf or Dirichlet. Everybody waits for the
GPU whose experts are asked most, so the cost of a step follows from that GPU's load and from its fullest expert.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BALANCED = "balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How tokens are sent to experts.

    `load`: balanced, random (every choice is an independent draw), zipf (share of the i-th expert ~ i^-skew) or
    dirichlet (shares drawn with concentration `skew`). `capacity`: rows that an expert's buffer holds, in even
    shares; the rest is dropped and short buffers are padded; None: nothing is dropped. `deduplicated`: a token
    travels once to each GPU that holds any of its experts, instead of once per expert. `domain`: ranks of an expert
    group that share a node; a token then crosses to another node once and is handed on inside.
    """

    load: str = BALANCED
    skew: float = 1.0
    seed: int = 0
    capacity: float | None = None
    deduplicated: bool = False
    domain: int | None = None
    dtype: str | None = None  # of what is dispatched; None: of activations

    def fullest(self, num_experts: int, num_ranks: int, top_k: int, rows: int) -> tuple[float, float]:
        """(rows of the fullest rank, rows of its fullest expert), each over the mean of its kind.

        `rows` are the (token, expert) pairs that the group of `num_ranks` routes.
        """
        if self.capacity is not None:
            return self.capacity, 1.0
        if self.load == BALANCED:
            return 1.0, 1.0
        drawn = rows if self.load == "random" else 0  # only a sample depends on its size
        return _fullest(self.load, self.skew, self.seed, num_experts, num_ranks, top_k, drawn)

    def dropped(self, num_experts: int, top_k: int, rows: int) -> float:
        """Share of (token, expert) pairs that find their expert's buffer full."""
        if self.capacity is None or self.load == BALANCED:
            return 0.0 if self.capacity is None else max(0.0, 1.0 - self.capacity)
        shares = expert_shares(self.load, self.skew, self.seed, num_experts, top_k, rows)
        return float((shares - self.capacity / num_experts).clip(min=0.0).sum())


EVEN = Routing()


@lru_cache(maxsize=1024)
def _fullest(
    load: str, skew: float, seed: int, num_experts: int, num_ranks: int, top_k: int, rows: int
) -> tuple[float, float]:
    shares = expert_shares(load, skew, seed, num_experts, top_k, rows).reshape(num_ranks, -1)
    of_rank = shares.sum(axis=1)
    fullest = int(of_rank.argmax())
    inside = shares[fullest]
    return float(of_rank[fullest]) * num_ranks, float(inside.max() / inside.mean())


def expert_shares(
    load: str, skew: float, seed: int, num_experts: int, top_k: int, rows: int
) -> NDArray[np.float64]:
    """Share of all (token, expert) pairs that each expert gets, shape [num_experts], sum 1.

    No expert gets more than 1 / top_k, since a token chooses it once; what a distribution gives beyond is spread
    over the others. Experts stand on ranks in no order of popularity.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    if load == BALANCED:
        return np.full(num_experts, 1.0 / num_experts)
    if load == "random":
        counts = generator.multinomial(rows, np.full(num_experts, 1.0 / num_experts))
        shares = counts / max(1, rows)
    elif load == "zipf":
        shares = np.arange(1, num_experts + 1, dtype=float) ** -skew
        shares = generator.permutation(shares / shares.sum())
    elif load == "dirichlet":
        shares = generator.dirichlet(np.full(num_experts, skew))
    else:
        raise ValueError(f"unknown load {load!r} (known: balanced, random, zipf, dirichlet)")
    return _capped(shares, 1.0 / top_k)


def _capped(shares: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """The shares with none above `most`, the excess given to the others in proportion."""
    import numpy as np

    full = np.zeros(len(shares), dtype=bool)
    while True:
        over = (shares > most * (1 + 1e-12)) & ~full
        if not over.any():
            return shares
        full |= over
        left = 1.0 - most * full.sum()
        rest = shares[~full].sum()
        shares = np.where(full, most, shares * (left / rest) if rest > 0 else left / max(1, (~full).sum()))


def distinct_ranks(
    num_experts: int, num_ranks: int, top_k: int, groups: int = 1, groups_per_token: int = 1
) -> float:
    """Mean number of ranks that the `top_k` distinct experts of a token stand on, all choices equally likely.

    num_ranks x (1 - C(E - E/r, k) / C(E, k)): a rank is missed when all choices fall on the others' experts. Where a
    token chooses within `groups_per_token` of `groups` equal groups of experts (node-limited routing, DeepSeek-V3),
    the same holds among the ranks of those groups; a rank that holds several groups is counted as if it held one.
    """
    if groups_per_token < groups:
        num_experts = num_experts * groups_per_token // groups
        num_ranks = max(1, num_ranks * groups_per_token // groups)
    per_rank = num_experts // num_ranks
    missed = 1.0
    for i in range(top_k):
        missed *= max(0, num_experts - per_rank - i) / (num_experts - i)
    return num_ranks * (1.0 - missed)
