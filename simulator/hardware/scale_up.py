"""Which links a flow between two GPUs of one node takes: switched NVLink, an NVLink mesh, or PCIe.

One group of equal nodes at a time; its links are laid out node after node so that ids are base + node x
stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from simulator.hardware.links import FloatArray, IntArray, LinkTable
from simulator.hardware.wiring import Block

if TYPE_CHECKING:
    from simulator.hardware.gpu import ScaleUp
    from simulator.hardware.node import Node

NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """The links inside the nodes of one group; arrays are [node in group, GPU in node], -1 for absent links.

    `out` and `into` are the GPU's scale-up ports (nvswitch only), `host_out` and `host_in` its PCIe or C2C
    link, `mesh` [node, mesh link] the direct links and `mesh_paths` [source, destination, hop] their order on
    a path, `root` [node] what all PCIe traffic between GPUs of a node shares (empty where that is not
    narrower).
    """

    out: IntArray
    into: IntArray
    host_out: IntArray
    host_in: IntArray
    mesh: IntArray
    mesh_paths: IntArray
    root: IntArray
    latency: float
    """Seconds added to flows inside the node that run over no scale-up link (PCIe)."""

    @property
    def joins_gpus(self) -> bool:
        """Whether GPUs can hand data to each other without the host."""
        return bool((self.out >= 0).all() or self.mesh.size)

    def blocks(self, flow: IntArray, node: IntArray, source: IntArray, destination: IntArray) -> list[Block]:
        """Links of flows from GPU position `source` to another, `destination`, of node-in-group `node`."""
        if self.mesh.size:
            steps = self.mesh_paths[source, destination]
            blocks: list[Block] = []
            for hop in range(steps.shape[1]):
                used = np.nonzero(steps[:, hop] >= 0)[0]
                blocks.append((flow[used], self.mesh[node[used], steps[used, hop]], 1.0))
            return blocks
        if (self.out >= 0).all():
            return [(flow, self.out[node, source], 1.0), (flow, self.into[node, destination], 1.0)]
        middle = [(flow, self.root[node], 1.0)] if self.root.size else []
        return [
            (flow, self.host_out[node, source], 1.0),
            *middle,
            (flow, self.host_in[node, destination], 1.0),
        ]


def wire_nodes(node: Node, gpus: IntArray, hosts: IntArray, table: LinkTable) -> NodeLinks:
    """Add the links inside the nodes of one group; `gpus` [node, GPU] and `hosts` [node] are vertices.

    Raises ValueError where a mesh leaves two GPUs of the node without a path.
    """
    absent = np.full(gpus.shape, -1, dtype=np.int64)
    out = into = absent
    mesh = mesh_paths = root = NONE
    gpu, interconnect, several = node.gpu, node.interconnect, node.num_gpus > 1
    host_out = table.add_links("host_out", gpus, hosts[:, None], gpu.host_link.bandwidth)
    host_in = table.add_links("host_in", hosts[:, None], gpus, gpu.host_link.bandwidth)
    if several and interconnect.kind == "nvswitch":
        switches = table.add_vertices("nvswitch", len(gpus))[:, None]
        bandwidth = _scale_up(node).bandwidth
        out = table.add_links("scale_up_out", gpus, switches, bandwidth, interconnect.latency)
        into = table.add_links("scale_up_in", switches, gpus, bandwidth)
    elif several and interconnect.kind == "nvlink_mesh":
        mesh, mesh_paths = _wire_mesh(node, gpus, table)
    over_host = several and not mesh.size and bool((out < 0).all())
    if over_host and interconnect.root_bandwidth is not None:
        root = table.add_links("host_root", hosts, hosts, interconnect.root_bandwidth)
    latency = interconnect.latency if over_host else 0.0
    return NodeLinks(out, into, host_out, host_in, mesh, mesh_paths, root, latency)


def _scale_up(node: Node) -> ScaleUp:
    """The GPU's scale-up ports, which a node that is joined by them has been checked to have."""
    if node.gpu.scale_up is None:
        raise ValueError(f"{node.interconnect.kind} needs scale-up links, which {node.gpu.name} lacks")
    return node.gpu.scale_up


def _wire_mesh(node: Node, gpus: IntArray, table: LinkTable) -> tuple[IntArray, IntArray]:
    """Direct links between pairs of GPUs, both directions; a GPU's bandwidth is divided over its lanes.

    Pairs without a link go over the intermediate GPUs of a shortest path, the one whose narrowest link is
    widest. Returns (link ids [node, link], path [source, destination, hop] of positions among a node's links,
    -1 after the end).
    """
    lanes = np.zeros((node.num_gpus, node.num_gpus))
    for a, b, count in node.interconnect.links:
        lanes[a, b] += count
        lanes[b, a] += count
    per_lane = _scale_up(node).bandwidth / (_scale_up(node).lanes or lanes.sum(axis=1).max())
    tail, head = np.nonzero(lanes)
    number = np.full(lanes.shape, -1, dtype=np.int64)
    number[tail, head] = np.arange(len(tail))
    mesh = table.add_links(
        "mesh", gpus[:, tail], gpus[:, head], lanes[tail, head] * per_lane, node.interconnect.latency
    )
    paths = [[_widest_shortest(lanes, a, b) for b in range(node.num_gpus)] for a in range(node.num_gpus)]
    longest = max(len(path) for row in paths for path in row) - 1
    steps = np.full((node.num_gpus, node.num_gpus, longest), -1, dtype=np.int64)
    for a, row in enumerate(paths):
        for b, path in enumerate(row):
            for hop, (here, there) in enumerate(pairwise(path)):
                steps[a, b, hop] = number[here, there]
    return mesh, steps


def _widest_shortest(lanes: FloatArray, source: int, destination: int) -> list[int]:
    """GPUs on the path with the fewest links and, of those, the widest narrowest link (ties: lowest ids)."""
    found: dict[int, tuple[float, list[int]]] = {source: (np.inf, [source])}
    frontier = dict(found)
    while destination not in found:
        reached: dict[int, tuple[float, list[int]]] = {}
        for here, (width, path) in sorted(frontier.items()):
            for there in map(int, np.nonzero(lanes[here])[0]):
                candidate = min(width, float(lanes[here, there]))
                if there not in found and (there not in reached or candidate > reached[there][0]):
                    reached[there] = (candidate, [*path, there])
        if not reached:
            raise ValueError(f"no NVLink path from GPU {source} to GPU {destination} of the node")
        found |= reached
        frontier = reached
    return found[destination][1]
