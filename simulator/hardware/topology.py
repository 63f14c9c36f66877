"""Which links the traffic between any two GPUs of a cluster crosses, and with which share of it.

Links are directed and carry the traffic of one direction. Inside a node: the source's scale-up port out and
the destination's in (nvswitch), direct links (nvlink_mesh) or the host links (pcie). Between nodes: host
link, NIC out, the fabric's links, NIC in, host link. NICs are shared by consecutive GPUs where a node has
fewer of them than GPUs, and bundled where it has more. Each host's DRAM, disks and cores are resources too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simulator.description.faults import listing, raise_if_any, suggestion
from simulator.hardware.host_links import HostLinks, wire_hosts
from simulator.hardware.links import FloatArray, IntArray, LinkTable, VertexBlock, vertex_name
from simulator.hardware.placement import places
from simulator.hardware.ports import place_ports, wire_nics
from simulator.hardware.routing import Routes, latency_of, ring_routes_of, routes_of, scale_up_bandwidth_of
from simulator.hardware.scale_up import NodeLinks, wire_nodes
from simulator.hardware.wiring import Ports, Wiring

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.gpu import GPU
    from simulator.hardware.node import Node


UNCONNECTED = Wiring(np.zeros(0, dtype=np.int64), 0.0, lambda source, destination, key: [])
"""The fabric of a single node without a NIC."""


@dataclass(frozen=True)
class Topology:
    """A cluster's GPUs and links.

    Per GPU: `gpu_node`, `gpu_local` (position in its node), `gpu_port` (index into `ports`, -1 without NIC),
    `gpu_hardware` (index into `hardware`) and the ids of its own links, -1 where it has no such link. Per
    link: `kind` (index into `kind_names`), `tail` and `head` (vertices), `capacity` in bytes/s and
    `latency_of_link` in seconds. Per node: `node_hardware` (index into `nodes`), `node_group` (index into
    `node_links`).
    """

    gpu_node: IntArray
    gpu_local: IntArray
    gpu_port: IntArray
    gpu_hardware: IntArray
    hardware: tuple[GPU, ...]
    node_hardware: IntArray
    nodes: tuple[Node, ...]
    kind: IntArray
    kind_names: tuple[str, ...]
    tail: IntArray
    head: IntArray
    capacity: FloatArray
    latency_of_link: FloatArray
    scale_up_out: IntArray
    scale_up_in: IntArray
    host_out: IntArray
    host_in: IntArray
    uplink_out: IntArray
    uplink_in: IntArray
    nic_out: IntArray
    nic_in: IntArray
    ports: Ports
    wiring: Wiring
    node_links: tuple[NodeLinks, ...]
    node_group: IntArray
    node_first_port: IntArray
    host: HostLinks
    _vertex_blocks: list[VertexBlock]

    @property
    def num_gpus(self) -> int:
        return len(self.gpu_node)

    @property
    def num_nodes(self) -> int:
        return len(self.node_hardware)

    @property
    def num_links(self) -> int:
        return len(self.kind)

    @property
    def bisection(self) -> float | None:
        """Bytes/s from the first half of the nodes to the second by closed form; null where there is none."""
        return self.wiring.bisection

    def link_kind(self, link: int) -> str:
        """The kind of a link: scale_up_out, nic_in, leaf_up, global, torus_x, ..."""
        return self.kind_names[self.kind[link]]

    def link_name(self, link: int) -> str:
        """Such as `leaf_up leaf[3] → spine[0,0]`."""
        tail, head = (vertex_name(self._vertex_blocks, int(ends[link])) for ends in (self.tail, self.head))
        return f"{self.link_kind(link)} {tail} → {head}"

    def routes(self, source: IntArray, destination: IntArray) -> Routes:
        """The links of each flow source[i] → destination[i] (GPU ids); none for a GPU's flow to itself.

        Raises ValueError for GPUs that do not exist, or nodes without any link between them.
        """
        return routes_of(self, source, destination)

    def ring_routes(self, group: IntArray, source: IntArray, destination: IntArray) -> Routes:
        """Routes of the edges of rings and chains, `group` [flows] telling which collective each belongs to.

        Differs from `routes` inside NVLink meshes only. There a library ignores the order of the members and lays
        as many rings through them as the links allow; what a GPU sends is spread over those (see `rings`).
        """
        return ring_routes_of(self, group, source, destination)

    def latency(self, source: IntArray, destination: IntArray) -> FloatArray:
        """Seconds one way of an empty message per flow: links and switches crossed, NICs included.

        A NIC's latency is that of a whole one-way trip between two hosts without a switch, half at each end.
        """
        return latency_of(self, source, destination)

    def scale_up_bandwidth(self, members: IntArray) -> float:
        """Bytes/s and direction at which a ring of these GPUs moves inside their nodes, the slowest node's.

        In a mesh only links among the members count; without GPUs that share a node it is infinite.
        """
        return scale_up_bandwidth_of(self, members)

    @cached_property
    def group_first_node(self) -> IntArray:
        return np.searchsorted(self.node_group, np.arange(len(self.node_links)))

    @cached_property
    def nic_behind_host(self) -> npt.NDArray[np.bool_]:
        """[num_gpus] whether the way to the NIC leads over the GPU's host link."""
        return np.array([node.nic_attachment == "host_link" for node in self.nodes])[
            self.node_hardware[self.gpu_node]
        ]

    @cached_property
    def joins_gpus(self) -> npt.NDArray[np.bool_]:
        return np.array([scale_up.joins_gpus for scale_up in self.node_links])[self.node_group]

    @cached_property
    def first_gpu_of_port(self) -> IntArray:
        return np.searchsorted(self.gpu_port, np.arange(len(self.ports)))

    @cached_property
    def num_gpus_of_port(self) -> IntArray:
        return np.bincount(self.gpu_port, minlength=len(self.ports))


@lru_cache(maxsize=32)
def build_topology(cluster: Cluster) -> Topology:
    """The links and routes of a cluster, kept for the next call with an equal cluster.

    Raises ValueError where fabric and nodes do not fit together, KeyFaults (a ValueError) for background traffic on
    links that are not there.
    """
    table = LinkTable()
    groups = [(group.node, group.num_nodes) for group in cluster.node_groups]
    counts = np.array([num_nodes for _, num_nodes in groups])
    node_group = np.repeat(np.arange(len(groups)), counts)
    gpus_in = np.array([node.num_gpus for node, _ in groups])
    gpu_node = np.repeat(np.arange(len(node_group)), gpus_in[node_group])
    node_first_gpu = np.concatenate(([0], np.cumsum(gpus_in[node_group])[:-1]))
    gpus, hosts = table.add_vertices("gpu", len(gpu_node)), table.add_vertices("host", len(node_group))

    scale_ups = []
    for index, (node, _) in enumerate(groups):
        here = np.nonzero(node_group == index)[0]
        ids = node_first_gpu[here][:, None] + np.arange(node.num_gpus)
        scale_ups.append(wire_nodes(node, gpus[ids], hosts[here], table))
    ports, gpu_port = place_ports(groups, node_group, places(cluster))
    wired = cluster.fabric.wire(ports, table) if len(ports) else UNCONNECTED
    nic_out, nic_in = wire_nics(groups, node_group, ports, wired, hosts, table)
    host = wire_hosts(groups, node_group, hosts, table)

    hardware = tuple(dict.fromkeys(node.gpu for node, _ in groups))
    gpu_class = np.array([hardware.index(node.gpu) for node, _ in groups])
    nodes = tuple(dict.fromkeys(node for node, _ in groups))
    node_class = np.array([nodes.index(node) for node, _ in groups])
    kind, tail, head, capacity, latency = table.columns()
    _take_background(cluster, table, kind, capacity)
    return Topology(
        gpu_node=gpu_node,
        gpu_local=np.arange(len(gpu_node)) - node_first_gpu[gpu_node],
        gpu_port=gpu_port,
        gpu_hardware=gpu_class[node_group[gpu_node]],
        hardware=hardware,
        node_hardware=node_class[node_group],
        nodes=nodes,
        kind=kind,
        kind_names=tuple(table.kind_names),
        tail=tail,
        head=head,
        capacity=capacity,
        latency_of_link=latency,
        scale_up_out=np.concatenate([s.out.ravel() for s in scale_ups]),
        scale_up_in=np.concatenate([s.into.ravel() for s in scale_ups]),
        host_out=np.concatenate([s.host_out.ravel() for s in scale_ups]),
        host_in=np.concatenate([s.host_in.ravel() for s in scale_ups]),
        uplink_out=np.concatenate([s.uplink_out.ravel() for s in scale_ups]),
        uplink_in=np.concatenate([s.uplink_in.ravel() for s in scale_ups]),
        nic_out=nic_out[gpu_port] if len(ports) else gpu_port,
        nic_in=nic_in[gpu_port] if len(ports) else gpu_port,
        ports=ports,
        wiring=wired,
        node_links=tuple(scale_ups),
        node_group=node_group,
        node_first_port=np.searchsorted(ports.node, np.arange(len(node_group))),
        host=host,
        _vertex_blocks=table.vertex_blocks,
    )


def _take_background(cluster: Cluster, table: LinkTable, kind: IntArray, capacity: FloatArray) -> None:
    """Lower the capacities by what other jobs take."""
    for index, traffic in enumerate(cluster.background):
        known = table.kind_names
        if traffic.links not in known:
            hint = suggestion(traffic.links, known)
            message = f"no link is a {traffic.links!r}{hint} (this cluster has: {listing(known)})"
            raise_if_any([(f"background.{index}.links", message)])
        links = np.flatnonzero(kind == known.index(traffic.links))
        outside = [place for place in traffic.which if not 0 <= place < len(links)]
        if outside:
            message = f"there is no {traffic.links} {outside[0]} (0 to {len(links) - 1})"
            raise_if_any([(f"background.{index}.which", message)])
        taken = links[list(traffic.which)] if traffic.which else links
        capacity[taken] *= 1.0 - traffic.share
