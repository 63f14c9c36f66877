"""Ring: every rank passes chunks to the next; all links busy all the time, latency grows with the ranks."""

from __future__ import annotations

from itertools import pairwise
from math import lcm

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape


def ring_orders(layout: tuple[int, ...]) -> list[list[int]]:
    """The rings NCCL would open: one on a single node, else as many as spread evenly over every node's
    members.

    Each visits the nodes in order and each node's members in order, but enters the node at another
    member.
    """
    nodes = [[i for i, node in enumerate(layout) if node == b] for b in range(max(layout) + 1)]
    if len(nodes) == 1:
        return [nodes[0]]
    channels = lcm(*(len(block) for block in nodes))
    starts = [[channel * len(block) // channels for block in nodes] for channel in range(channels)]
    return [
        [member for block, at in zip(nodes, start, strict=True) for member in block[at:] + block[:at]]
        for start in starts
    ]


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """The buffer is split over the rings, and each ring's part into one chunk per rank."""
    orders, n = ring_orders(layout), len(layout)
    transfers: list[Transfer] = []
    if op in ("broadcast", "reduce"):  # chains, and one chunk per ring: pipelining changes times, not bytes
        return Schedule(1.0 / len(orders), tuple(_chain(op, orders)))
    for ring, order in enumerate(orders):
        chunk_of = {rank: ring * n + rank for rank in order}
        rounds = {"all_reduce": 2 * (n - 1)}.get(op, n - 1)
        for step in range(rounds):
            reducing = op == "reduce_scatter" or (op == "all_reduce" and step < n - 1)
            for place, rank in enumerate(order):
                # All-gather starts with a rank's own chunk; a reduction of chunk c one after c's owner.
                origin = place - step % (n - 1) - (1 if reducing else 0)
                chunk = chunk_of[order[origin % n]]
                transfers.append(Transfer(step, rank, order[(place + 1) % n], chunk, reducing))
    return Schedule(1.0 / (len(orders) * n), tuple(transfers))


def _chain(op: str, orders: list[list[int]]) -> list[Transfer]:
    transfers = []
    for ring, order in enumerate(orders):
        start = order.index(0)
        path = order[start:] + order[:start]
        if op == "reduce":
            path = path[1:] + path[:1]
        for step, (here, there) in enumerate(pairwise(path)):
            transfers.append(Transfer(step, here, there, ring, op == "reduce"))
    return transfers


OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "broadcast_each", "reduce")


@algorithm("ring", OPERATIONS, schedule=schedule)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """All-reduce: 2(n-1)/n x size per edge in 2(n-1) steps; gather and scatter half of both.

    Broadcast and reduce: size along a chain. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
    clusters of workstations" (2009).
    """
    n, laps = group.num_ranks, 2 if op == "all_reduce" else 1
    steps, network_steps = laps * (n - group.num_nodes), laps * (group.num_nodes - 1)
    if op in ("broadcast", "reduce"):
        return Movement("chain" if op == "broadcast" else "chain_to_first", size, steps, network_steps)
    if op == "broadcast_each":  # the bytes of an all-gather, but one chain at a time
        return Movement("ring", (n - 1) / n * size, steps, network_steps, stretch=n / (n - 1))
    return Movement("ring", laps * (n - 1) / n * size, steps, network_steps, local=size / n)
