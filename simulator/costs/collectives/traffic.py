"""What each traffic pattern sends from whom to whom, for one group laid out over nodes."""

from __future__ import annotations

import numpy as np

from simulator.costs.collectives.patterns import REDUCER, FloatArray, IntArray, Local, NodeBlocks, pattern


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


@pattern("cycle")
def _cycle(blocks: NodeBlocks) -> Local:
    """Every rank sends `volume` straight to the next in rank order, the last to the first."""
    order = np.sort(np.concatenate(blocks.positions))
    return [(order, np.roll(order, -1), np.ones(len(order)))]
