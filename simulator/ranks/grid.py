"""Which rank stands where in the grid tp x cp x dp x pp, and which ranks form each process group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]
AXES = ("tp", "cp", "dp", "pp")
EXPERT_AXES = ("edp", "ep", "etp")


@dataclass(frozen=True)
class Grid:
    """The rank grid; `order` lists the axes from the innermost (neighbouring ranks) to the outermost.

    The ranks of a stage, tp innermost, are cut into runs of `etp` ranks that split one expert (all of tp if None),
    runs of `ep` such runs that share out the experts, and `edp` copies of those. With etp = tp, ep divides the plane
    of dp and cp. `ulysses` neighbours of a cp group exchange heads for tokens, and `ring` goes across.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    order: tuple[str, ...] = AXES
    etp: int | None = None
    ulysses: int = 1

    @property
    def expert_tp(self) -> int:
        return self.tp if self.etp is None else self.etp

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @cached_property
    def ranks(self) -> Ranks:
        """Array of ranks with one dimension per axis, in the order tp, cp, dp, pp."""
        sizes = [getattr(self, axis) for axis in reversed(self.order)]
        grid = np.arange(self.world, dtype=np.int64).reshape(sizes)
        names = list(reversed(self.order))
        return grid.transpose([names.index(axis) for axis in AXES])

    def size(self, axis: str) -> int:
        sizes: Mapping[str, int] = {
            "dp_cp": self.dp * self.cp,
            "ep": self.ep,
            "ulysses": self.ulysses,
            "ring": self.cp // self.ulysses,
            "etp": self.expert_tp,
            "edp": self.tp * self.dp * self.cp // (self.ep * self.expert_tp),
            "world": self.world,
            "model": self.tp * self.pp,
        }
        return sizes[axis] if axis in sizes else int(getattr(self, axis))

    def coordinate(self, axis: str) -> Ranks:
        """Position of each rank along a basic axis, shape [world]."""
        index = np.empty(self.world, dtype=np.int64)
        shape = self.ranks.shape
        position = np.arange(shape[AXES.index(axis)])
        view = [1] * len(shape)
        view[AXES.index(axis)] = -1
        index[self.ranks] = np.broadcast_to(position.reshape(view), shape)
        return index

    def groups(self, axis: str) -> Ranks:
        """Process groups of an axis, shape [groups, size]; members in ascending rank order of the axis."""
        tp, cp, dp, pp = (getattr(self, a) for a in AXES)
        if axis in AXES:
            return np.moveaxis(self.ranks, AXES.index(axis), -1).reshape(-1, self.size(axis))
        if axis in ("ulysses", "ring"):
            inner = self.groups("cp").reshape(-1, cp // self.ulysses, self.ulysses)
            return (inner if axis == "ulysses" else inner.swapaxes(1, 2)).reshape(-1, self.size(axis))
        if axis == "world":
            return np.arange(self.world, dtype=np.int64)[None, :]
        if axis == "model":
            return self.ranks.transpose(1, 2, 3, 0).reshape(cp * dp, pp * tp)
        plane = self.ranks.transpose(0, 3, 2, 1).reshape(tp * pp, dp * cp)
        if self.order.index("dp") < self.order.index("cp"):
            plane = self.ranks.transpose(0, 3, 1, 2).reshape(tp * pp, cp * dp)
        if axis == "dp_cp":
            return plane
        stage = np.moveaxis(plane.reshape(tp, pp, dp * cp), 0, -1)
        blocks = stage.reshape(pp, self.size("edp"), self.ep, self.expert_tp)
        if axis in EXPERT_AXES:
            return np.moveaxis(blocks, EXPERT_AXES.index(axis) + 1, -1).reshape(-1, self.size(axis))
        raise KeyError(axis)

    def pipeline_pairs(self, step: int) -> Ranks:
        """(sender, receiver) ranks from each stage to the one `step` (+1 or -1) away, wrapping, shape [world, 2]."""
        ranks = self.ranks
        peers = np.roll(ranks, -step, axis=AXES.index("pp"))
        return np.stack([ranks.reshape(-1), peers.reshape(-1)], axis=1)
