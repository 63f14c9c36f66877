"""Which rank stands where in the grid tp x cp x dp x pp, and which ranks form each process group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.synchronisation import strides

if TYPE_CHECKING:
    from simulator.workloads.plan import Plan
    from simulator.workloads.synchronisation import Synchronisation

Ranks = NDArray[np.int64]
AXES = ("tp", "cp", "dp", "pp")
EXPERT_AXES = ("edp", "ep", "etp")
TENSOR_AXES = ("tp_z", "tp", "tp_x")
"""Dimensions of tensor parallelism from the outermost; with one of each but tp, tp is all of them."""
SUBDIVIDED = {
    "shard": ("dp_cp", "shard"),
    "replicate": ("dp_cp", "shard"),
    "secondary": ("dp_cp", "secondary"),
    "eshard": ("edp", "eshard"),
    "ereplicate": ("edp", "eshard"),
    "ep_inside": ("ep", "ep_inside"),
    "ep_across": ("ep", "ep_inside"),
}
"""Axis → (axis whose groups it divides, axis whose size the runs of neighbours have)."""
Mixing = tuple[tuple[int, int, int], ...]
"""By step: how far the replicas are shifted before they are cut into groups, the distance of members, the size."""
ACROSS = ("replicate", "ereplicate", "ep_across")
"""Of those, the axes that go across the runs."""


@dataclass(frozen=True)
class Grid:
    """The rank grid; `order` lists the axes from the innermost (neighbouring ranks) to the outermost.

    The ranks of a stage, tp innermost, are cut into runs of `etp` ranks that split one expert (all of tp if None),
    runs of `ep` such runs that share out the experts, and `edp` copies of those. With etp = tp, ep divides the plane
    of dp and cp. `ulysses` neighbours of a cp group exchange heads for tokens, and `ring` goes across.

    Of the ranks that hold the same parameters (dp_cp), runs of `shard` share them out and `replicate` goes across;
    runs of `secondary` share out a second copy. Experts in that plane are shared out over `eshard`. An expert group is
    made of runs of `domain` ranks (`ep_inside`) that share a node.

    Groups `cp@d` are runs of d neighbours along cp, then dp: where documents are shared by fewer or more than cp ranks.

    Tensor parallelism may have three dimensions, `tp_x` innermost, then `tp`, then `tp_z`; the place of tp in the order
    is then that of all three together.

    Where replicas mix parameters in small groups, `mixing` has the groups of each step in turn (axes mix0, mix1, ...);
    gossip+1, gossip-1, gossip+2, ... are the replicas in the order in which each sends to the one so far on.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    order: tuple[str, ...] = AXES
    etp: int | None = None
    ulysses: int = 1
    shard: int | None = None
    secondary: int | None = None
    domain: int | None = None
    tp_x: int = 1
    tp_z: int = 1
    mixing: Mixing = ()

    @staticmethod
    def of(plan: Plan, num_gpus: int) -> Grid:
        """The grid of a plan on that many GPUs."""
        return Grid(
            tp=plan.tp,
            cp=plan.cp,
            dp=plan.data_parallel(num_gpus),
            pp=plan.pp,
            ep=plan.ep,
            order=plan.order,
            etp=plan.expert_tp,
            ulysses=plan.ulysses or 1,
            shard=plan.zero3.shard_group,
            secondary=plan.zero3.secondary_group,
            domain=plan.experts.domain,
            tp_x=plan.tp_x,
            tp_z=plan.tp_z,
            mixing=_mixing(plan.synchronisation, plan.data_parallel(num_gpus)),
        )

    @property
    def tensor(self) -> int:
        """Ranks that split every layer, over all dimensions of tensor parallelism."""
        return self.tp * self.tp_x * self.tp_z

    @property
    def expert_tp(self) -> int:
        return self.tp if self.etp is None else self.etp

    @property
    def world(self) -> int:
        return self.tensor * self.cp * self.dp * self.pp

    @cached_property
    def ranks(self) -> Ranks:
        """Array of ranks with one dimension per axis, in the order tp, cp, dp, pp."""
        sizes = [self.tensor if axis == "tp" else getattr(self, axis) for axis in reversed(self.order)]
        grid = np.arange(self.world, dtype=np.int64).reshape(sizes)
        names = list(reversed(self.order))
        return grid.transpose([names.index(axis) for axis in AXES])

    @cached_property
    def slots(self) -> Ranks:
        """Place of each rank along cp, then dp, shape [world]."""
        return self.coordinate("dp") * self.cp + self.coordinate("cp")

    def size(self, axis: str) -> int:
        if axis.startswith("cp@"):
            return int(axis[3:])
        sizes: Mapping[str, int] = {
            "dp_cp": self.dp * self.cp,
            "ep": self.ep,
            "ulysses": self.ulysses,
            "ring": self.cp // self.ulysses,
            "etp": self.expert_tp,
            "ep_inside": self.domain or self.ep,
            "ep_across": self.ep // (self.domain or self.ep),
            "edp": self.tp * self.dp * self.cp // (self.ep * self.expert_tp),
            "shard": self._shard,
            "replicate": self.dp * self.cp // self._shard,
            "secondary": self.secondary or 1,
            "eshard": self._expert_shard,
            "ereplicate": self.tp * self.dp * self.cp // (self.ep * self.expert_tp * self._expert_shard),
            "world": self.world,
            "model": self.tensor * self.pp,
            "tied": 2,
            "twins": 2,
        }
        if axis.startswith("mix"):
            return self.mixing[int(axis[3:])][2]
        if axis.startswith("gossip"):
            return self.dp // gcd(self.dp, int(axis[6:]))
        return sizes[axis] if axis in sizes else int(getattr(self, axis))

    @property
    def _shard(self) -> int:
        return self.dp * self.cp if self.shard is None else self.shard

    @property
    def _expert_shard(self) -> int:
        """Ranks of a shard group that hold the same experts."""
        return max(1, self._shard * self.tp // (self.ep * self.expert_tp))

    def coordinate(self, axis: str) -> Ranks:
        """Position of each rank along a basic axis, shape [world]."""
        index = np.empty(self.world, dtype=np.int64)
        shape = self.ranks.shape
        position = np.arange(shape[AXES.index(axis)])
        view = [1] * len(shape)
        view[AXES.index(axis)] = -1
        index[self.ranks] = np.broadcast_to(position.reshape(view), shape)
        return index

    def axis_at(self, axis: str, stage: int) -> str:
        """The name of an axis for the groups of one stage: that of the others' too."""
        return axis

    def groups(self, axis: str) -> Ranks:
        """Process groups of an axis, shape [groups, size]; members in ascending rank order of the axis."""
        tp, cp, dp, pp = self.tensor, self.cp, self.dp, self.pp
        if axis in TENSOR_AXES:
            cube = np.moveaxis(self.ranks, 0, -1).reshape(-1, self.tp_z, self.tp, self.tp_x)
            return np.moveaxis(cube, TENSOR_AXES.index(axis) + 1, -1).reshape(-1, self.size(axis))
        if axis in AXES:
            return np.moveaxis(self.ranks, AXES.index(axis), -1).reshape(-1, self.size(axis))
        if axis in ("ulysses", "ring"):
            inner = self.groups("cp").reshape(-1, cp // self.ulysses, self.ulysses)
            return (inner if axis == "ulysses" else inner.swapaxes(1, 2)).reshape(-1, self.size(axis))
        if axis.startswith("cp@"):
            return self.ranks.transpose(0, 3, 2, 1).reshape(-1, self.size(axis))
        if axis in SUBDIVIDED:
            divided, run = SUBDIVIDED[axis]
            whole = self.groups(divided)
            parts = whole.reshape(len(whole), -1, self.size(run))
            return (parts.swapaxes(1, 2) if axis in ACROSS else parts).reshape(-1, self.size(axis))
        if axis.startswith("mix"):
            shift, distance, size = self.mixing[int(axis[3:])]
            runs = np.roll(self.groups("dp"), -shift, axis=1).reshape(-1, size, distance)
            return runs.swapaxes(1, 2).reshape(-1, size)
        if axis.startswith("gossip"):
            offset = int(axis[6:])
            starts, steps = np.arange(gcd(self.dp, offset)), np.arange(self.size(axis))
            order = (starts[:, None] + steps * offset) % self.dp
            return self.groups("dp")[:, order].reshape(-1, self.size(axis))
        if axis == "world":
            return np.arange(self.world, dtype=np.int64)[None, :]
        if axis.startswith("pair"):
            return self.pipeline_pairs(int(axis[4:]))
        if axis == "tied":
            return self.ranks[..., [0, -1]].reshape(-1, 2)
        if axis == "twins":  # stages that hold the same parts of the model (DualPipe)
            half = pp // 2
            return np.stack([self.ranks[..., :half], self.ranks[..., : half - 1 : -1]], axis=-1).reshape(
                -1, 2
            )
        if axis == "model":
            return self.ranks.transpose(1, 2, 3, 0).reshape(cp * dp, pp * tp)
        plane = self.ranks.transpose(0, 3, 2, 1).reshape(tp * pp, dp * cp)
        if self.order.index("dp") < self.order.index("cp"):
            plane = self.ranks.transpose(0, 3, 1, 2).reshape(tp * pp, cp * dp)
        if axis == "dp_cp":
            return plane
        stage = np.moveaxis(plane.reshape(tp, pp, dp * cp), 0, -1)
        split = self.expert_tp * self.tp_x * self.tp_z  # experts know tp alone, other layers all of it
        blocks = stage.reshape(pp, self.size("edp"), self.ep, split)
        if axis in EXPERT_AXES:
            return np.moveaxis(blocks, EXPERT_AXES.index(axis) + 1, -1).reshape(-1, self.size(axis))
        raise KeyError(axis)

    def pipeline_pairs(self, step: int) -> Ranks:
        """(sender, receiver) ranks from each stage to the one `step` (+1 or -1) away, wrapping, shape [world, 2]."""
        ranks = self.ranks
        peers = np.roll(ranks, -step, axis=AXES.index("pp"))
        return np.stack([ranks.reshape(-1), peers.reshape(-1)], axis=1)


def _mixing(synchronisation: Synchronisation, replicas: int) -> Mixing:
    """The groups in which replicas mix parameters."""
    group = synchronisation.group
    if synchronisation.scheme != "groups" or group is None:
        return ()
    if group >= replicas:
        return ((0, 1, replicas),)
    if synchronisation.shuffle == "rotate":
        return ((0, 1, group), (group // 2, 1, group))
    return tuple((0, distance, size) for distance, size in strides(replicas, group))
