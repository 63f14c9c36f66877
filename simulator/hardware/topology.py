"""Which links the traffic between any two GPUs of a cluster crosses, and with which share of it.

Links are directed and carry the traffic of one direction. Inside a node: the source's scale-up port out and
the destination's in (nvswitch), direct links (nvlink_mesh) or the host links (pcie). Between nodes: host
link, NIC out, the fabric's links, NIC in, host link. NICs are shared by consecutive GPUs where a node has
fewer of them than GPUs, and bundled where it has more. Each host's DRAM, disks and cores are resources too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from simulator.description.faults import listing, raise_if_any, suggestion
from simulator.hardware.host_links import wire_hosts
from simulator.hardware.links import FloatArray, IntArray, LinkTable
from simulator.hardware.placement import places
from simulator.hardware.ports import place_ports, wire_nics
from simulator.hardware.routing import Routes, latency_of, ring_routes_of, routes_of, scale_up_bandwidth_of
from simulator.hardware.scale_up import wire_nodes
from simulator.hardware.wired import Wired
from simulator.hardware.wiring import Wiring

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster


UNCONNECTED = Wiring(np.zeros(0, dtype=np.int64), 0.0, lambda source, destination, key: [])
"""The fabric of a single node without a NIC."""


class Topology(Wired):
    """A cluster's links, and the routes of traffic on them."""

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
