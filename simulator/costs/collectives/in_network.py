"""In-network reduction (NVLink SHARP, "NVLS"): the switch adds, so all data crosses each GPU's port about
once.
"""

from __future__ import annotations

from math import ceil, log2

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape
from simulator.costs.collectives.patterns import REDUCER
from simulator.costs.collectives.traffic import double_tree
from simulator.costs.collectives.tree import depths


def no_reducer(op: str, group: GroupShape) -> str | None:
    """Only some switches can add."""
    if not group.in_network_reduction:
        return f"in_network {op} needs a scale-up switch that reduces; this {group.scale_up_kind} does not"
    return None


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """Per node: every member's chunk to the reducer, the sum to the chunk's owner, up and down the trees of
    nodes, back to the reducer and out to everybody.
    """
    nodes = [[i for i, node in enumerate(layout) if node == b] for b in range(max(layout) + 1)]
    trees, transfers = double_tree(len(nodes)), []
    channels = 1
    for block in nodes:
        channels = channels * len(block) if channels % len(block) else channels
    for tree, parents in enumerate(trees):
        depth = depths([int(p) for p in parents])
        for channel in range(channels):
            chunk = tree * channels + channel
            owner = [block[len(block) * channel // channels] for block in nodes]
            for b, block in enumerate(nodes):
                up, down = 2 + max(depth) - depth[b], 2 + max(depth) + depth[b]
                if len(block) > 1:
                    reducer, end = REDUCER - b, 3 + 2 * max(depth)
                    transfers += [Transfer(0, member, reducer, chunk, True) for member in block]
                    transfers.append(Transfer(1, reducer, owner[b], chunk, False))
                    transfers.append(Transfer(end, owner[b], reducer, chunk, False))
                    transfers += [Transfer(end + 1, reducer, member, chunk, False) for member in block]
                if parents[b] >= 0:
                    transfers.append(Transfer(up, owner[b], owner[parents[b]], chunk, True))
                    transfers.append(Transfer(down, owner[parents[b]], owner[b], chunk, False))
    return Schedule(1.0 / (len(trees) * channels), tuple(sorted(transfers, key=lambda t: t.round)))


@algorithm("in_network", ("all_reduce",), schedule=schedule, refuses=no_reducer)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """(1 + 1/g) x size through every GPU's port in two hops; a double tree joins nodes ("NVLSTree")."""
    return Movement("switch", size, 2, 2 * ceil(log2(group.num_nodes)))
