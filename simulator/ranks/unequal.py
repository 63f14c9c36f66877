"""Pipeline stages of unequal degrees: which ranks each has, and who sends what to whom between them.

Ranks count through the stages one after the other, and inside a stage as in a grid of its own. A tensor that goes from
one stage to another is cut over the replicas (by samples) and over the tensor-parallel ranks (by tokens) of both; every
piece that one rank has and another needs is a message (Zhuang et al. 2023, cross-mesh resharding; Alpa, Metis).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from simulator.ranks.grid import Grid, Ranks

Held = Literal["cut", "copied", "rows"]
"""How ranks hold a tensor that they exchange. cut: by samples over dp and by tokens over tp. copied: by samples over
dp, while tp ranks have copies, of which each receives one. rows: by rows over tp, while replicas have copies."""

ACROSS = ("pairs", "tied", "model", "world")
"""Axes whose groups have ranks of several stages."""


@dataclass(frozen=True)
class Crossing:
    """Messages from one stage to another that are the same part of the tensor, the pairs of ranks of an axis."""

    axis: str
    share: Fraction


@dataclass(frozen=True)
class UnequalStages:
    """The ranks of stages of which each is a grid of its own (with pp 1)."""

    stages: tuple[Grid, ...]

    @property
    def world(self) -> int:
        return sum(grid.world for grid in self.stages)

    @cached_property
    def slots(self) -> Ranks:
        """Place of each rank along cp, then dp, of its stage, shape [world]."""
        return np.concatenate([grid.slots for grid in self.stages])

    def first_rank(self, stage: int) -> int:
        return sum(grid.world for grid in self.stages[:stage])

    def ranks(self, stage: int) -> Ranks:
        """Ranks of a stage, shape [tp, cp, dp]."""
        return self.stages[stage].ranks[..., 0] + self.first_rank(stage)

    def coordinate(self, axis: str) -> Ranks:
        """Position of each rank along an axis, shape [world]."""
        if axis == "pp":
            return np.repeat(np.arange(len(self.stages)), [grid.world for grid in self.stages])
        return np.concatenate([grid.coordinate(axis) for grid in self.stages])

    def axis_at(self, axis: str, stage: int) -> str:
        """The name of an axis for the groups of one stage: dp#1."""
        if axis.startswith("pair "):  # two places in every group of another axis
            pair, whole, ends = axis.split()
            return f"{pair} {self.axis_at(whole, stage)} {ends}"
        return axis if axis.split()[0] in ACROSS else f"{axis}#{stage}"

    def groups(self, axis: str) -> Ranks:
        """Process groups of an axis of one stage, or across stages; shape [groups, size]."""
        name, _, stage = axis.partition("#")
        if stage:
            return self.stages[int(stage)].groups(name) + self.first_rank(int(stage))
        if axis.startswith("pairs "):
            return self._pairs(axis)
        if axis == "tied":
            first, last = (self.ranks(stage).reshape(-1) for stage in (0, len(self.stages) - 1))
            return np.stack([first, last], axis=1)
        if axis == "world" or (axis == "model" and len({grid.dp for grid in self.stages}) > 1):
            return np.arange(self.world, dtype=np.int64)[None, :]
        if axis == "model":
            every = [self.ranks(stage).transpose(1, 2, 0) for stage in range(len(self.stages))]
            return np.concatenate(every, axis=2).reshape(-1, sum(grid.tp for grid in self.stages))
        raise KeyError(axis)

    def alike(self, one: int, other: int) -> bool:
        """Whether two stages have the same degrees."""
        return self.stages[one] == self.stages[other]

    def crossings(self, source: int, target: int, held: Held) -> tuple[Crossing, ...]:
        """Every message from one stage to another, by its share of the tensor over all ranks but those of cp."""
        shares = sorted(_edges(self, source, target, held))
        return tuple(Crossing(f"pairs {source}>{target} {held} {share}", share) for share in shares)

    def _pairs(self, axis: str) -> Ranks:
        _, ends, held, share = axis.split()
        source, target = map(int, ends.split(">"))
        return _edges(self, source, target, held)[Fraction(share)]


@lru_cache(maxsize=256)
def _edges(layout: UnequalStages, source: int, target: int, held: str) -> dict[Fraction, Ranks]:
    """(sender, receiver) ranks [messages, 2] by share of the tensor."""
    senders, receivers = layout.ranks(source), layout.ranks(target)
    over_tp = _meetings(len(senders), len(receivers), held != "copied")
    over_dp = _meetings(senders.shape[2], receivers.shape[2], held != "rows")
    found: dict[Fraction, list[Ranks]] = {}
    for i, j, samples in over_dp:
        for t, u, part in over_tp:
            pairs = np.stack([senders[t, :, i], receivers[u, :, j]], axis=1)
            found.setdefault(samples * part, []).append(pairs)
    return {share: np.concatenate(pairs) for share, pairs in found.items()}


def _meetings(senders: int, receivers: int, cut: bool) -> list[tuple[int, int, Fraction]]:
    """(sender, receiver, share): both have even parts of a tensor; or all have all of it, and each gets it from one."""
    if not cut:
        return [(place * senders // receivers, place, Fraction(1)) for place in range(receivers)]
    found = []
    for one in range(senders):
        first, last = one * receivers // senders, -(-(one + 1) * receivers // senders)
        for other in range(first, last):
            begin = max(Fraction(one, senders), Fraction(other, receivers))
            end = min(Fraction(one + 1, senders), Fraction(other + 1, receivers))
            found.append((one, other, end - begin))
    return found
