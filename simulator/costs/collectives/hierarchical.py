"""Hierarchical: reduce-scatter inside each node, all-reduce between counterparts, all-gather inside each
node.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.costs.collectives import ring
from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape


def uneven(op: str, group: GroupShape) -> str | None:
    """Counterparts exist only where every node has equally many members."""
    if group.num_ranks != group.num_nodes * group.ranks_per_node:
        return (
            f"hierarchical {op} needs equally many ranks on every node, got {group.num_ranks} ranks "
            f"on {group.num_nodes} nodes with {group.ranks_per_node} on the fullest"
        )
    return None


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """g x k chunks: a node's member keeps those of its own place, and rings over k nodes reduce them."""
    nodes = [[i for i, node in enumerate(layout) if node == b] for b in range(max(layout) + 1)]
    members, num_nodes = len(nodes[0]), len(nodes)
    transfers: list[Transfer] = []
    at = 0
    for phase in ("reduce_scatter", "all_reduce", "all_gather"):
        # (ring order, the chunks that make up chunk r of that ring): counterparts, or the members of a node
        parts: list[tuple[list[int], list[list[int]]]]
        if phase == "all_reduce":
            parts = [
                ([block[place] for block in nodes], [[place * num_nodes + c] for c in range(num_nodes)])
                for place in range(members)
            ]
        else:
            inner = [list(range(place * num_nodes, (place + 1) * num_nodes)) for place in range(members)]
            parts = [(block, inner) for block in nodes]
        length = 0
        for order, chunks in parts:
            if len(order) == 1:
                continue
            for t in ring.schedule(phase, (0,) * len(order)).transfers:
                length = max(length, t.round + 1)
                transfers += [
                    replace(
                        t,
                        round=at + t.round,
                        source=order[t.source],
                        destination=order[t.destination],
                        chunk=c,
                    )
                    for c in chunks[t.chunk]
                ]
        at += length
    return Schedule(1.0 / (members * num_nodes), tuple(sorted(transfers, key=lambda t: t.round)))


@algorithm("hierarchical", ("all_reduce",), schedule=schedule, refuses=uneven)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """2(g-1) hops inside a node and 2(k-1) between k nodes; each NIC carries 2(k-1)/k of its rank's part."""
    return Movement("hierarchical", size, 2 * (group.ranks_per_node - 1), 2 * (group.num_nodes - 1))
