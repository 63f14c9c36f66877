"""Which links a flow between two GPUs of one node takes: switched NVLink, an NVLink mesh, or the host's PCIe.

One group of equal nodes at a time; its links are laid out node after node so that ids are base + node x
stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simulator.hardware.links import FloatArray, IntArray, LinkTable
from simulator.hardware.rings import ring_usage
from simulator.hardware.wiring import Block

if TYPE_CHECKING:
    from simulator.hardware.gpu import ScaleUp
    from simulator.hardware.node import Node


@dataclass(frozen=True, slots=True)
class Mesh:
    """Direct links between the GPUs of a node.

    `links` [node in group, number] are link ids, `number` [GPU, GPU] the number of the direct link (-1: none),
    `lanes` [GPU, GPU] how many lanes of `lane_bandwidth` bytes/s it has, and `paths` [GPU, GPU, hop] the numbers
    on the way (-1 after its end, and all along where there is no way).
    """

    links: IntArray
    number: IntArray
    lanes: IntArray
    lane_bandwidth: float
    paths: IntArray

    def ring_usage(self, positions: IntArray) -> tuple[float, FloatArray]:
        """(bytes/s of rings through the GPUs at `positions`, [GPU, GPU] what each sends to which other)."""
        chosen = self.lanes[np.ix_(positions, positions)]
        width, among = ring_usage(tuple(map(tuple, chosen.tolist())))
        usage = np.zeros(self.lanes.shape)
        usage[np.ix_(positions, positions)] = among
        return width * self.lane_bandwidth, usage


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """The links inside the nodes of one group; arrays are [node in group, GPU in node], -1 for absent links.

    `out` and `into` are the GPU's scale-up ports (nvswitch only), `host_out` and `host_in` its PCIe or C2C
    link, `uplink_out` and `uplink_in` what it shares behind that with neighbours, `root` [node] what all host
    traffic between GPUs of a node shares (empty where that is not narrower). `host_latency` is the time such
    traffic takes, in seconds.
    """

    out: IntArray
    into: IntArray
    host_out: IntArray
    host_in: IntArray
    uplink_out: IntArray
    uplink_in: IntArray
    root: IntArray
    host_latency: float
    is_switched: bool
    mesh: Mesh | None

    @property
    def joins_gpus(self) -> bool:
        """Whether GPUs can hand data to each other without the host."""
        return self.is_switched or (self.mesh is not None and bool((self.mesh.paths[0, 1:, 0] >= 0).all()))

    def over_host(self, source: IntArray, destination: IntArray) -> npt.NDArray[np.bool_]:
        """Which flows between positions of a node have no scale-up links to run over."""
        if self.mesh is None:
            return np.full(len(source), not self.is_switched)
        return self.mesh.paths[source, destination, 0] < 0

    def blocks(self, flow: IntArray, node: IntArray, source: IntArray, destination: IntArray) -> list[Block]:
        """Links of flows from GPU position `source` to another, `destination`, of node-in-group `node`."""
        if self.is_switched:
            return [(flow, self.out[node, source], 1.0), (flow, self.into[node, destination], 1.0)]
        blocks: list[Block] = []
        if self.mesh is not None:
            steps = self.mesh.paths[source, destination]
            for hop in range(steps.shape[1]):
                used = np.nonzero(steps[:, hop] >= 0)[0]
                blocks.append((flow[used], self.mesh.links[node[used], steps[used, hop]], 1.0))
        host = np.nonzero(self.over_host(source, destination))[0]
        blocks.append((flow[host], self.host_out[node[host], source[host]], 1.0))
        if self.root.size:
            blocks.append((flow[host], self.root[node[host]], 1.0))
        return [*blocks, (flow[host], self.host_in[node[host], destination[host]], 1.0)]


def wire_nodes(node: Node, gpus: IntArray, hosts: IntArray, table: LinkTable) -> NodeLinks:
    """Add the links inside the nodes of one group; `gpus` [node, GPU] and `hosts` [node] are vertices.

    Raises ValueError where the interconnect needs scale-up links that the GPU lacks.
    """
    interconnect, several = node.interconnect, node.num_gpus > 1
    out = into = np.full(gpus.shape, -1, dtype=np.int64)
    root, mesh = np.zeros(0, dtype=np.int64), None
    bandwidth = node.gpu.host_link.bandwidth
    host_out = table.add_links("host_out", gpus, hosts[:, None], bandwidth)
    host_in = table.add_links("host_in", hosts[:, None], gpus, bandwidth)
    uplink_out, uplink_in = (_wire_uplinks(node, name, hosts, table) for name in ("uplink_out", "uplink_in"))
    is_switched = several and interconnect.kind == "nvswitch"
    if is_switched:
        switches = table.add_vertices("nvswitch", len(gpus))[:, None]
        bandwidth = _scale_up(node).bandwidth
        out = table.add_links("scale_up_out", gpus, switches, bandwidth, interconnect.latency)
        into = table.add_links("scale_up_in", switches, gpus, bandwidth)
    elif several and interconnect.kind == "nvlink_mesh":
        mesh = _wire_mesh(node, gpus, table)
    if several and not is_switched and interconnect.root_bandwidth is not None:
        root = table.add_links("host_root", hosts, hosts, interconnect.root_bandwidth)
    latency = interconnect.latency
    return NodeLinks(out, into, host_out, host_in, uplink_out, uplink_in, root, latency, is_switched, mesh)


def _wire_uplinks(node: Node, name: str, hosts: IntArray, table: LinkTable) -> IntArray:
    """[node, GPU] the link to the host that a GPU shares with its neighbours; -1 where it shares none."""
    if node.host_uplinks is None:
        return np.full((len(hosts), node.num_gpus), -1, dtype=np.int64)
    ends = np.repeat(hosts[:, None], node.host_uplinks, axis=1)
    links = table.add_links(name, ends, ends, node.gpu.host_link.bandwidth)
    return links[:, [node.uplink_of(gpu) for gpu in range(node.num_gpus)]]


def _scale_up(node: Node) -> ScaleUp:
    """The GPU's scale-up ports, which a node that is joined by them has been checked to have."""
    if node.gpu.scale_up is None:
        raise ValueError(f"{node.interconnect.kind} needs scale-up links, which {node.gpu.name} lacks")
    return node.gpu.scale_up


def _wire_mesh(node: Node, gpus: IntArray, table: LinkTable) -> Mesh:
    """Direct links between pairs of GPUs, both directions; a GPU's bandwidth is divided over its lanes.

    Pairs without a link go over the intermediate GPUs of a shortest path, the one whose narrowest link is
    widest; pairs without a path (bridged cards) over the host.
    """
    lanes = np.zeros((node.num_gpus, node.num_gpus), dtype=np.int64)
    for a, b, count in node.interconnect.links:
        lanes[a, b] += count
        lanes[b, a] += count
    lane_bandwidth = _scale_up(node).bandwidth / int(_scale_up(node).lanes or lanes.sum(axis=1).max())
    tail, head = np.nonzero(lanes)
    number = np.full(lanes.shape, -1, dtype=np.int64)
    number[tail, head] = np.arange(len(tail))
    latency = node.interconnect.latency
    capacity = np.asarray(lanes[tail, head] * lane_bandwidth, dtype=np.float64)
    links = table.add_links("mesh", gpus[:, tail], gpus[:, head], capacity, latency)
    found = {
        (a, b): path
        for a in range(node.num_gpus)
        for b in range(node.num_gpus)
        if a != b and (path := _widest_shortest(lanes, a, b))
    }
    longest = max(len(path) for path in found.values()) - 1
    paths = np.full((*lanes.shape, longest), -1, dtype=np.int64)
    for (a, b), path in found.items():
        paths[a, b, : len(path) - 1] = number[path[:-1], path[1:]]
    return Mesh(links, number, lanes, lane_bandwidth, paths)


def _widest_shortest(lanes: IntArray, source: int, destination: int) -> list[int]:
    """GPUs on the path with the fewest links and, of those, the widest narrowest link; empty if there is none.

    Ties go to the lowest numbers.
    """
    found: dict[int, tuple[float, list[int]]] = {source: (np.inf, [source])}
    frontier = found
    while frontier and destination not in found:
        reached: dict[int, tuple[float, list[int]]] = {}
        for here, (width, path) in sorted(frontier.items()):
            for there in map(int, np.nonzero(lanes[here])[0]):
                candidate = min(width, float(lanes[here, there]))
                if there not in found and (there not in reached or candidate > reached[there][0]):
                    reached[there] = (candidate, [*path, there])
        found = found | reached
        frontier = reached
    return found[destination][1] if destination in found else []
