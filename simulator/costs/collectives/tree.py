"""Double binary tree: reduce towards two roots and broadcast back; latency grows with the logarithm of the
nodes.
"""

from __future__ import annotations

from math import ceil, lcm, log2

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape
from simulator.costs.collectives.traffic import double_tree


def depths(parents: list[int]) -> list[int]:
    """Distance of every node from the root."""
    result = []
    for node in range(len(parents)):
        depth = 0
        while parents[node] >= 0:
            node, depth = parents[node], depth + 1
        result.append(depth)
    return result


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """Two trees of nodes x one channel per member; inside a node a chain that ends at the channel's head."""
    nodes = [[i for i, node in enumerate(layout) if node == b] for b in range(max(layout) + 1)]
    channels, trees = lcm(*(len(block) for block in nodes)), double_tree(len(nodes))
    transfers: list[Transfer] = []
    longest = max(map(len, nodes))
    for tree, parents in enumerate(trees):
        depth = depths([int(p) for p in parents])
        for channel in range(channels):
            chunk = tree * channels + channel
            heads = [len(block) * channel // channels for block in nodes]
            for b, block in enumerate(nodes):
                chain = block[heads[b] :] + block[: heads[b]]
                last_up = 2 * longest + max(depth) - depth[b]
                first_down = 2 * longest + max(depth) + 1 + depth[b]
                for place in range(len(chain) - 1, 0, -1):
                    transfers.append(Transfer(longest - place, chain[place], chain[place - 1], chunk, True))
                if parents[b] >= 0:
                    head = nodes[parents[b]][heads[parents[b]]]
                    transfers.append(Transfer(last_up, chain[0], head, chunk, True))
                    transfers.append(Transfer(first_down - 1, head, chain[0], chunk, False))
                for place in range(len(chain) - 1):
                    after = 3 * longest + 2 * max(depth) + 2 + place
                    transfers.append(Transfer(after, chain[place], chain[place + 1], chunk, False))
    return Schedule(1.0 / (len(trees) * channels), tuple(sorted(transfers, key=lambda t: t.round)))


@algorithm("tree", ("all_reduce",), schedule=schedule)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """2(g-1) hops along the chains of a node and 2 log2(nodes) between nodes.

    Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009).
    """
    height = ceil(log2(group.num_nodes))
    return Movement("tree", size, 2 * (group.ranks_per_node - 1), 2 * height)
