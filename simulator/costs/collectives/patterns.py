"""Which bytes flow between whom: the edges of every traffic pattern, for many groups at once.

An edge is (group, source, destination, share): share x the collective's volume flows from source to
destination. The node's in-network reducer is the endpoint `REDUCER`: such an edge draws on the scale-up
port of the GPU alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

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

    def __iter__(self):  # type: ignore[no-untyped-def]
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


# --- pieces that patterns are made of ---


def across(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """One unit of traffic from the members of one node to those of another, spread evenly over the NICs of
    both.

    Member j of m covers the interval [j/m, (j+1)/m); each pair carries the overlap of its intervals, so
    nodes with equally many members pair them off.
    """
    cuts = np.unique(np.concatenate([np.arange(len(a)) * len(b) for a, b in ((left, right), (right, left))]))
    total = len(left) * len(right)
    share = np.diff(np.append(cuts, total)) / total
    return left[cuts // len(right)], right[cuts // len(left)], share


def _ring_inside(block: IntArray, share: float) -> tuple[IntArray, IntArray, FloatArray]:
    """Each member of a node to the next one, the last to the first."""
    return block, np.roll(block, -1), np.full(len(block), share)


# --- patterns ---


@pattern("ring")
def _ring(blocks: NodeBlocks) -> Local:
    """Every rank sends `volume` to the next.

    On several nodes NCCL opens one ring per member of a node; ring c leaves each node through another
    member, so (g - 1)/g of what a rank sends stays inside and 1/g goes to its counterpart on the next
    node.
    """
    if blocks.num_nodes == 1:
        return [_ring_inside(blocks.positions[0], 1.0)]
    pieces = [_ring_inside(p, (len(p) - 1) / len(p)) for p in blocks.positions if len(p) > 1]
    for here, there in zip(blocks.positions, blocks.positions[1:] + blocks.positions[:1], strict=True):
        pieces.append(across(here, there))
    return pieces


@pattern("chain")
def _chain(blocks: NodeBlocks) -> Local:
    """Broadcast from the first rank: the ring without what enters that rank."""
    return [(s[d != 0], d[d != 0], share[d != 0]) for s, d, share in _ring(blocks)]


@pattern("chain_to_first")
def _chain_to_first(blocks: NodeBlocks) -> Local:
    """Reduce to the first rank: the ring without what leaves that rank."""
    return [(s[s != 0], d[s != 0], share[s != 0]) for s, d, share in _ring(blocks)]


def tree_parents(num_nodes: int) -> IntArray:
    """[num_nodes] parent of each node in a binary tree whose odd nodes are leaves; the root, 0, has parent
    -1.

    A node hangs below the node whose number has its lowest set bit moved one place up. The tree is the
    one of Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan" (2009).
    """
    parents = np.full(num_nodes, -1, dtype=np.int64)
    for node in range(1, num_nodes):
        low = node & -node
        parent = (node ^ low) | (low << 1)
        parents[node] = parent if parent < num_nodes else node ^ low
    return parents


def double_tree(num_nodes: int) -> tuple[IntArray, IntArray]:
    """Two trees over the same nodes such that (almost) no node is inner in both: mirrored, or shifted by
    one.
    """
    first = tree_parents(num_nodes)
    rename = np.arange(num_nodes)
    rename = num_nodes - 1 - rename if num_nodes % 2 == 0 else (rename + 1) % num_nodes
    second = np.full(num_nodes, -1, dtype=np.int64)
    second[rename[1:]] = rename[first[1:]]
    return first, second


def _between_nodes(blocks: NodeBlocks, up: bool, down: bool) -> Local:
    """Half of the volume along each of the two trees, towards the roots and back."""
    pieces = []
    for parents in double_tree(blocks.num_nodes):
        for child, parent in enumerate(parents):
            if parent >= 0:
                ways = [(child, parent)] * up + [(parent, child)] * down
                for here, there in ways:
                    source, destination, share = across(blocks.positions[here], blocks.positions[there])
                    pieces.append((source, destination, share / 2))
    return pieces


@pattern("tree")
def _tree(blocks: NodeBlocks) -> Local:
    """Reduce `volume` up a double binary tree of nodes and broadcast it down again; a chain inside each node.

    One channel per member of a node, each headed by another member, so that all NICs share the node's edges.
    """
    pieces = _between_nodes(blocks, up=True, down=True)
    for block in blocks.positions:
        if len(block) > 1:
            source, destination, share = _ring_inside(block, (len(block) - 1) / len(block))
            pieces += [(source, destination, share), (destination, source, share)]
    return pieces


@pattern("switch")
def _switch(blocks: NodeBlocks) -> Local:
    """In-network all-reduce: the switch reads every member's `volume`, hands each member its reduced part,
    takes it back and multicasts it; nodes are joined by a double binary tree.
    """
    pieces = _between_nodes(blocks, up=True, down=True)
    for block in blocks.positions:
        if len(block) > 1:
            reducer, share = np.full(len(block), REDUCER), np.full(len(block), 1.0 + 1.0 / len(block))
            pieces += [(block, reducer, share), (reducer, block, share)]
    return pieces


@pattern("direct")
def _direct(blocks: NodeBlocks) -> Local:
    """Every ordered pair carries `volume`.

    Between nodes, messages from one member to a whole node travel as one flow to its counterpart there
    (NCCL's PXN sends along rails too): n x nodes edges instead of n^2, with the same bytes through every
    NIC.
    """
    pieces: Local = []
    for block in blocks.positions:
        source, destination = np.repeat(block, len(block)), np.tile(block, len(block))
        apart = source != destination
        pieces.append((source[apart], destination[apart], np.ones(int(apart.sum()))))
    equal = len({len(p) for p in blocks.positions}) == 1
    if equal and blocks.num_nodes > 1:
        grid = np.stack(blocks.positions)  # [nodes, members]
        nodes, members = grid.shape
        here, there = np.divmod(np.arange(nodes * nodes), nodes)
        here, there = here[here != there], there[here != there]
        source, destination = grid[here].ravel(), grid[there].ravel()
        return [*pieces, (source, destination, np.full(len(source), float(members)))]
    for a, here in enumerate(blocks.positions):
        for b, there in enumerate(blocks.positions):
            if a != b:
                source, destination, share = across(here, there)
                pieces.append((source, destination, share * (len(here) * len(there))))
    return pieces


@pattern("hierarchical")
def _hierarchical(blocks: NodeBlocks) -> Local:
    """Reduce-scatter `volume` inside each node, all-reduce each part between counterparts, all-gather
    inside.
    """
    sizes = {len(p) for p in blocks.positions}
    if len(sizes) > 1:
        raise ValueError(
            f"hierarchical all-reduce needs equally many ranks on every node, got {sorted(sizes)}"
        )
    size, nodes = sizes.pop(), blocks.num_nodes
    pieces = [_ring_inside(p, 2.0 * (size - 1) / size) for p in blocks.positions if size > 1]
    if nodes > 1:
        share = 2.0 * (nodes - 1) / nodes
        for here, there in zip(blocks.positions, blocks.positions[1:] + blocks.positions[:1], strict=True):
            pieces.append((here, there, np.full(size, share / size)))
    return pieces


@pattern("halving_doubling")
def _halving_doubling(blocks: NodeBlocks) -> Local:
    """All-reduce of `volume`: ranks at distance 1, 2, 4, ... exchange 1/2, 1/4, 1/8, ... of it, there and
    back.

    Ranks beyond the largest power of two first hand all of theirs to a partner and get the result back
    (fold).
    """
    order = np.concatenate(blocks.positions)
    power = 1 << (len(order).bit_length() - 1)
    core, extra = order[:power], order[power:]
    pieces: Local = []
    for step in range(power.bit_length() - 1):
        partner = core[np.arange(power) ^ (1 << step)]
        pieces.append((core, partner, np.full(power, 2.0 / (2 << step))))
    ones = np.ones(len(extra))
    return [*pieces, (extra, core[: len(extra)], ones), (core[: len(extra)], extra, ones)]


@pattern("pair")
def _pair(blocks: NodeBlocks) -> Local:
    """The first rank sends `volume` to the second."""
    if blocks.num_ranks != 2:
        raise ValueError(f"a point-to-point transfer has two ends, not {blocks.num_ranks}")
    order = np.sort(np.concatenate(blocks.positions))
    return [(order[:1], order[1:], np.ones(1))]
