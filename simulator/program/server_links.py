"""Which links gradients and parameters cross between a GPU and the hosts that hold parameters.

A server is a process on the host of each of the first `servers` nodes; parameters are spread evenly over them. What a
GPU pushes goes over its host link and NIC into the server's NIC and memory, what it pulls comes the other way. Where a
node's GPUs share one stream, each carries its part of it from the host's memory on (`shared`); the node's own server
adds up what its GPUs `collect` there, and hands out (`spread`) what came for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.hardware.topology import Topology
from simulator.program.host_copies import DRAM, HOST_LINK
from simulator.ranks.folding import GroupLayer

if TYPE_CHECKING:
    from simulator.hardware.node import Node
    from simulator.hardware.routing import Routes
    from simulator.workloads.synchronisation import Synchronisation

INSIDE = {"collect": ("host_out", "dram", "server"), "spread": ("host_in", "dram")}
"""What stays in a node → what each byte of it draws on."""

AXIS = "servers"
"""The axis of these operations: every rank is a group of its own."""


def operation(direction: str, servers: int, shared: bool) -> str:
    """The name of an operation: `push` or `pull`, over so many servers."""
    return f"{direction} {servers}" + (" shared" if shared else "")


def lacking(node: Node, synchronisation: Synchronisation) -> Iterator[str]:
    """What a node's description lacks to hold parameters."""
    if not synchronisation.uses_servers:
        return
    name = node.name or "the node"
    if node.cpu is None:
        yield f"servers: {name} does not describe its host (cpu: cores, memory, memory_bandwidth)"


def senders(op: str, num_nodes: int) -> int:
    """Nodes that send to one NIC at a time: all but the server's push to it, all servers answer a pull."""
    direction, *rest = op.split()
    if not rest:
        return 1
    servers = min(int(rest[0]), num_nodes)
    return max(1, num_nodes - 1 if direction == "push" else servers - (servers == num_nodes))


def efficiency(kind: str, network: float, received: float, rate: float) -> float:
    """Achieved part of a link's capacity; of a server's second, the bytes that it handles in it.

    `network` of links between nodes, `received` of the NIC at the end.
    """
    achieved: Mapping[str, float] = {
        "host_out": HOST_LINK,
        "host_in": HOST_LINK,
        "dram": DRAM,
        "server": rate,
        "nic_in": received,
    }
    return achieved.get(kind, network)


def server_layer(topology: Topology, op: str) -> tuple[GroupLayer, Routes]:
    """The links that every rank's `op` draws on, per byte; and the routes between nodes."""
    if op in INSIDE:
        return _inside(topology, op), topology.routes(
            np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        )
    direction, count, *rest = op.split()
    shared = bool(rest)
    servers = np.arange(min(int(count), topology.num_nodes))
    ranks = np.arange(topology.num_gpus, dtype=np.int64)
    rank, server = (one.ravel() for one in np.meshgrid(ranks, servers, indexing="ij"))
    home = topology.gpu_node[rank]
    part = np.full(len(rank), 1.0 / len(servers))
    if shared:
        part /= np.bincount(topology.gpu_node)[home]
    away = np.flatnonzero(home != server)
    sizes = np.bincount(topology.gpu_node)
    first = np.searchsorted(topology.gpu_node, servers)
    peer = first[server] + topology.gpu_local[rank] % sizes[server]
    ends = (rank[away], peer[away])
    routes = topology.routes(*(ends if direction == "push" else ends[::-1]))
    flow, link = away[routes.flow], routes.link
    own, other = ("host_out", "host_in") if direction == "push" else ("host_in", "host_out")
    kept = link != getattr(topology, other)[peer[flow]]
    if shared:
        kept &= link != getattr(topology, own)[rank[flow]]
    rows = [
        (rank[flow[kept]], link[kept], (part[flow] * routes.share)[kept]),
        (rank, topology.host.server[server], part),
        (rank, topology.host.dram[server], part),
    ]
    if not shared:
        here = np.flatnonzero(home == server)
        rows.append((rank[here], getattr(topology, own)[rank[here]], part[here]))
    group, links, amount = (np.concatenate(column) for column in zip(*rows, strict=True))
    return _layer(topology, group, links, amount), routes


def _inside(topology: Topology, op: str) -> GroupLayer:
    """A byte over every rank's own links."""
    ranks = np.arange(topology.num_gpus, dtype=np.int64)
    links = [
        getattr(topology, name)
        if name.startswith("host")
        else getattr(topology.host, name)[topology.gpu_node]
        for name in INSIDE[op]
    ]
    return _layer(
        topology, np.tile(ranks, len(links)), np.concatenate(links), np.ones(len(links) * len(ranks))
    )


def _layer(
    topology: Topology, group: NDArray[np.int64], links: NDArray[np.int64], amount: NDArray[np.float64]
) -> GroupLayer:
    """Every rank as a group of its own, with what it draws on each link added up; GPUs may lack a host link."""
    there = links >= 0
    group, links, amount = group[there], links[there], amount[there]
    key, inverse = np.unique(group * topology.num_links + links, return_inverse=True)
    summed = np.bincount(inverse, weights=amount).astype(np.float64)
    ranks = np.arange(topology.num_gpus, dtype=np.int64)
    colour = np.zeros(len(ranks), dtype=np.int64)
    return GroupLayer(ranks[:, None], key // topology.num_links, key % topology.num_links, summed, colour)
