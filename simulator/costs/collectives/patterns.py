"""Which bytes flow between whom: the edges of every traffic pattern, for many groups at once.

An edge is (group, source, destination, share): share x the collective's volume flows from source to
destination. The node's in-network reducer is the endpoint `REDUCER`: such an edge draws on the scale-up
port of the GPU alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.costs.collectives.group import GroupShape

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

REDUCER = -1


@dataclass(frozen=True, slots=True)
class Edges:
    """Parallel arrays [num_edges]: group index, source GPU, destination GPU, share of the volume."""

    group: IntArray
    source: IntArray
    destination: IntArray
    share: FloatArray

    def __iter__(self) -> Iterator[Any]:
        return iter((self.group, self.source, self.destination, self.share))

    def __len__(self) -> int:
        return len(self.share)


Local = list[tuple[IntArray, IntArray, FloatArray]]
"""(source, destination, share) by position in the group, in pieces."""

Pattern = Callable[["NodeBlocks"], Local]
PATTERNS: dict[str, Pattern] = {}


@dataclass(frozen=True, slots=True)
class NodeBlocks:
    """The members of one group by node: `positions[b]` are the places in the group that lie on its b-th
    node.
    """

    positions: tuple[IntArray, ...]

    @property
    def num_ranks(self) -> int:
        return sum(len(p) for p in self.positions)

    @property
    def num_nodes(self) -> int:
        return len(self.positions)


def pattern(name: str) -> Callable[[Pattern], Pattern]:
    """Register the decorated function as the edges of the pattern `name`."""

    def register(function: Pattern) -> Pattern:
        PATTERNS[name] = function
        return function

    return register


def edges(pattern: str, members: IntArray, node_of: IntArray) -> Edges:
    """The edges of `pattern` in every group.

    `members` [groups, n] holds GPU ids in rank order, `node_of` [num_gpus] the node of every GPU. Groups
    with the same layout over nodes (which positions share a node, in which order) are computed once.
    Raises ValueError for an unknown pattern, or one that the layout does not allow.
    """
    members = np.atleast_2d(np.asarray(members, dtype=np.int64))
    if pattern == "none" or members.shape[1] == 1:
        none = np.zeros(0, dtype=np.int64)
        return Edges(none, none, none, np.zeros(0))
    if pattern not in PATTERNS:
        raise ValueError(f"unknown pattern {pattern!r} (known: {', '.join(PATTERNS)})")
    colours = _first_occurrence(np.asarray(node_of, dtype=np.int64)[members])
    layouts, which = np.unique(colours, axis=0, return_inverse=True)
    pieces = []
    for index, layout in enumerate(layouts):
        groups = np.flatnonzero(which.ravel() == index)
        source, destination, share = layout_edges(pattern, tuple(int(c) for c in layout))
        here = members[groups]
        pieces.append(
            (
                np.repeat(groups, len(share)),
                _ids(here, source),
                _ids(here, destination),
                np.tile(share, len(groups)),
            )
        )
    return Edges(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _ids(members: IntArray, positions: IntArray) -> IntArray:
    """[groups x edges] GPU ids of positions in each group; the reducer stays what it is."""
    return np.where(positions == REDUCER, REDUCER, members[:, np.maximum(positions, 0)]).ravel()


def _first_occurrence(nodes: IntArray) -> IntArray:
    """[groups, n] nodes renamed 0, 1, ... in order of appearance within each group."""
    changes = np.ones(nodes.shape, dtype=bool)
    changes[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
    if (
        changes.sum(axis=1) == [len(np.unique(row)) for row in nodes]
    ).all():  # contiguous nodes: the common case
        return np.cumsum(changes, axis=1) - 1
    renamed = np.empty_like(nodes)
    for row, out in zip(nodes, renamed, strict=True):
        _, first, inverse = np.unique(row, return_index=True, return_inverse=True)
        out[:] = np.argsort(np.argsort(first))[inverse]
    return renamed


@lru_cache(maxsize=256)
def layout_edges(pattern: str, layout: tuple[int, ...]) -> tuple[IntArray, IntArray, FloatArray]:
    """(source, destination, share) by position for one group whose member i lies on node `layout[i]`."""
    nodes = np.asarray(layout, dtype=np.int64)
    blocks = NodeBlocks(tuple(np.flatnonzero(nodes == node) for node in range(int(nodes.max()) + 1)))
    pieces = [piece for piece in PATTERNS[pattern](blocks) if len(piece[2])]
    if not pieces:
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0)
    source, destination, share = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return source.astype(np.int64), destination.astype(np.int64), share.astype(np.float64)


def loads(pattern: str, group: GroupShape) -> tuple[float, float]:
    """(bytes at the busiest GPU's scale-up port, bytes at the busiest node's NICs) per byte of volume.

    Each is the larger of what enters and what leaves.
    """
    if pattern == "none" or group.num_ranks == 1:
        return 0.0, 0.0
    return _loads(pattern, group.num_ranks, group.num_nodes, group.ranks_per_node)


@lru_cache(maxsize=4096)
def _loads(pattern: str, num_ranks: int, num_nodes: int, ranks_per_node: int) -> tuple[float, float]:
    if pattern == "direct" and num_ranks == num_nodes * ranks_per_node:  # n^2 edges: closed form instead
        return float(ranks_per_node - 1), float(ranks_per_node * (num_ranks - ranks_per_node))
    layout = GroupShape(num_ranks=num_ranks, num_nodes=num_nodes, ranks_per_node=ranks_per_node).node_of
    source, destination, share = layout_edges(pattern, tuple(int(node) for node in layout))
    from_node = np.where(source == REDUCER, layout[destination], layout[source])
    to_node = np.where(destination == REDUCER, layout[source], layout[destination])
    inside = from_node == to_node
    scale_up = nic = 0.0
    for end, node in ((source, from_node), (destination, to_node)):
        ours = inside & (end != REDUCER)
        scale_up = max(scale_up, float(np.bincount(end[ours], share[ours], num_ranks).max()))
        nic = max(nic, float(np.bincount(node[~inside], share[~inside], num_nodes).max()))
    return scale_up, nic
