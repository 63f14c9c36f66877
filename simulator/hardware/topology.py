"""Which links the traffic between any two GPUs of a cluster crosses, and with which share of it.

Links are directed and carry the traffic of one direction. Inside a node: the source's scale-up port out and
the destination's in (nvswitch), direct links (nvlink_mesh) or the host links (pcie). Between nodes: host
link, NIC out, the fabric's links, NIC in, host link. NICs are shared by consecutive GPUs where a node has
fewer of them than GPUs, and bundled where it has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simulator.hardware.links import FloatArray, IntArray, LinkTable, VertexBlock, vertex_name
from simulator.hardware.placement import places
from simulator.hardware.scale_up import NodeLinks, wire_nodes
from simulator.hardware.wiring import Block, Ports, Wiring

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.gpu import GPU
    from simulator.hardware.node import Node


UNCONNECTED = Wiring(np.zeros(0, dtype=np.int64), 0.0, lambda source, destination, key: [])
"""The fabric of a single node without a NIC."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Which flow uses which link: parallel arrays, sorted by flow and, within a flow, in path order.

    `share` is the part of the flow's bytes that crosses the link (1, or less where it splits over several
    paths).
    """

    flow: IntArray
    link: IntArray
    share: FloatArray

    def __len__(self) -> int:
        return len(self.flow)


@dataclass(frozen=True)
class Topology:
    """A cluster's GPUs and links. Arrays are [num_gpus], [num_links] or [num_nodes], as their names say.

    `capacity` is in bytes/s, `latency` in seconds. Per-GPU link ids are -1 where the GPU has no such link.
    `hardware[gpu_hardware[g]]` describes GPU g, `nodes[node_hardware[n]]` node n.
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
    nic_out: IntArray
    nic_in: IntArray
    ports: Ports
    wiring: Wiring
    _scale_ups: tuple[NodeLinks, ...]
    _node_group: IntArray
    _node_first_port: IntArray
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
        source, destination = np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
        for ids in (source, destination):
            if ids.size and not (ids.min() >= 0 and ids.max() < self.num_gpus):
                raise ValueError(f"GPU ids must lie in 0 … {self.num_gpus - 1}")
        same_node = self.gpu_node[source] == self.gpu_node[destination]
        inside = np.nonzero(same_node & (source != destination))[0]
        across = np.nonzero(~same_node)[0]
        blocks = self._inside(inside, source[inside], destination[inside])
        if len(across):
            blocks += self._across(across, source[across], destination[across])
        return _gather(blocks)

    def latency(self, source: IntArray, destination: IntArray) -> FloatArray:
        """Seconds one way of an empty message per flow: links and switches crossed, NICs included.

        A NIC's latency is that of a whole one-way trip between two hosts without a switch, half at each end.
        """
        source, destination = np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
        routes = self.routes(source, destination)
        weights = routes.share * self.latency_of_link[routes.link]
        total = np.bincount(routes.flow, weights=weights, minlength=len(source))
        inside = (self.gpu_node[source] == self.gpu_node[destination]) & (source != destination)
        over_host = np.array([s.latency for s in self._scale_ups])[self._node_group[self.gpu_node[source]]]
        return np.asarray(total + np.where(inside, over_host, 0.0))

    def _inside(self, flow: IntArray, source: IntArray, destination: IntArray) -> list[Block]:
        blocks: list[Block] = []
        node = self.gpu_node[source]
        for index, (scale_up, first_node) in enumerate(
            zip(self._scale_ups, self._group_first_node, strict=True)
        ):
            pick = np.nonzero(self._node_group[node] == index)[0]
            if len(pick):
                local = self.gpu_local[source[pick]], self.gpu_local[destination[pick]]
                blocks += scale_up.blocks(flow[pick], node[pick] - first_node, *local)
        return blocks

    def _across(self, flow: IntArray, source: IntArray, destination: IntArray) -> list[Block]:
        key = source * np.int64(self.num_gpus) + destination
        sender = self._sender(source, destination)
        handed_over = np.nonzero(sender != source)[0]
        blocks = self._inside(flow[handed_over], source[handed_over], sender[handed_over])
        from_port, to_port = self.gpu_port[sender], self.gpu_port[destination]
        behind_host = self._behind_host
        blocks.append((flow, np.where(behind_host[sender], self.host_out[sender], -1), 1.0))
        blocks.append((flow, self.nic_out[sender], 1.0))
        for index, link, share in self.wiring.paths(from_port, to_port, key):
            blocks.append((flow[index], link, share))
        blocks.append((flow, self.nic_in[destination], 1.0))
        return [*blocks, (flow, np.where(behind_host[destination], self.host_in[destination], -1), 1.0)]

    def _sender(self, source: IntArray, destination: IntArray) -> IntArray:
        """The GPU whose NIC sends: with rails, the one of the source's node on the right rail."""
        rails = self.wiring.rail_of_port
        if rails is None:
            return source
        node = self.gpu_node[source]
        rail, own = rails[self.gpu_port[destination]], rails[self.gpu_port[source]]
        per_node = np.diff(np.append(self._node_first_port, len(self.ports)))[node]
        may_change = self._can_hand_over[node] & (rail != own) & (rail < per_node)
        sender = source.copy()
        pick = np.nonzero(may_change)[0]
        # Of the GPUs that share that rail's NIC, the one at the source's place among its own NIC's.
        place = source[pick] - self._first_gpu_of_port[self.gpu_port[source[pick]]]
        port = self._node_first_port[node[pick]] + rail[pick]
        sender[pick] = self._first_gpu_of_port[port] + place % self._gpus_of_port[port]
        return sender

    @cached_property
    def _group_first_node(self) -> IntArray:
        return np.searchsorted(self._node_group, np.arange(len(self._scale_ups)))

    @cached_property
    def _behind_host(self) -> npt.NDArray[np.bool_]:
        """[num_gpus] whether the way to the NIC leads over the GPU's host link."""
        return np.array([node.nic_attachment == "host_link" for node in self.nodes])[
            self.node_hardware[self.gpu_node]
        ]

    @cached_property
    def _can_hand_over(self) -> npt.NDArray[np.bool_]:
        return np.array([scale_up.joins_gpus for scale_up in self._scale_ups])[self._node_group]

    @cached_property
    def _first_gpu_of_port(self) -> IntArray:
        return np.searchsorted(self.gpu_port, np.arange(len(self.ports)))

    @cached_property
    def _gpus_of_port(self) -> IntArray:
        return np.bincount(self.gpu_port, minlength=len(self.ports))


def _gather(blocks: list[Block]) -> Routes:
    """Blocks in path order become arrays sorted by flow; absent links (-1) drop out."""
    blocks = [block for block in blocks if len(block[0])]
    if not blocks:
        none = np.zeros(0, dtype=np.int64)
        return Routes(none, none, np.zeros(0))
    flow = np.concatenate([index for index, _, _ in blocks])
    link = np.concatenate([ids for _, ids, _ in blocks])
    share = np.concatenate([np.broadcast_to(part, index.shape) for index, _, part in blocks])
    order = np.argsort(flow, kind="stable")
    order = order[link[order] >= 0]
    return Routes(flow[order], link[order], share[order])


@lru_cache(maxsize=32)
def build_topology(cluster: Cluster) -> Topology:
    """The links and routes of a cluster, kept for the next call with an equal cluster.

    Raises ValueError where fabric and nodes do not fit together.
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
    ports, gpu_port = _place_ports(groups, node_group, places(cluster))
    wired = cluster.fabric.wire(ports, table) if len(ports) else UNCONNECTED
    nic_out, nic_in = _wire_nics(groups, node_group, ports, wired, hosts, table)

    hardware = tuple(dict.fromkeys(node.gpu for node, _ in groups))
    gpu_class = np.array([hardware.index(node.gpu) for node, _ in groups])
    nodes = tuple(dict.fromkeys(node for node, _ in groups))
    node_class = np.array([nodes.index(node) for node, _ in groups])
    kind, tail, head, capacity, latency = table.columns()
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
        nic_out=_at(nic_out, gpu_port),
        nic_in=_at(nic_in, gpu_port),
        ports=ports,
        wiring=wired,
        _scale_ups=tuple(scale_ups),
        _node_group=node_group,
        _node_first_port=np.searchsorted(ports.node, np.arange(len(node_group))),
        _vertex_blocks=table.vertex_blocks,
    )


def _place_ports(
    groups: Sequence[tuple[Node, int]], node_group: IntArray, place: IntArray
) -> tuple[Ports, IntArray]:
    """(ports, port of each GPU): one port per NIC, but at most one per GPU; no ports where there are no NICs.

    GPU g of n uses NIC floor(g x NICs / n); with more NICs than GPUs its port bundles those from floor(g x
    NICs / n) up to the next GPU's first.
    """
    num_ports = np.array([min(node.num_nics, node.num_gpus) for node, _ in groups])
    per_node = num_ports[node_group]
    first_port = np.cumsum(per_node) - per_node
    port_node = np.repeat(np.arange(len(node_group)), per_node)
    of_gpu, bandwidth = [], []
    for (node, num_nodes), ports in zip(groups, num_ports, strict=True):
        firsts = np.arange(ports + 1) * node.num_nics // max(ports, 1)
        each = np.diff(firsts) * (node.nic.bandwidth if node.nic else 0.0)
        of_gpu.append(np.tile(np.arange(node.num_gpus) * ports // node.num_gpus, num_nodes))
        bandwidth.append(np.tile(each, num_nodes))
    gpus_in = np.array([node.num_gpus for node, _ in groups])
    gpu_port = np.concatenate(of_gpu) + np.repeat(first_port, gpus_in[node_group])
    ports = Ports(
        node=port_node,
        place=place[port_node],
        rail=np.arange(len(port_node)) - first_port[port_node],
        bandwidth=np.concatenate(bandwidth),
        num_nodes=len(node_group),
    )
    return ports, gpu_port if len(port_node) else np.full(len(gpu_port), -1, dtype=np.int64)


def _wire_nics(
    groups: Sequence[tuple[Node, int]],
    node_group: IntArray,
    ports: Ports,
    wired: Wiring,
    hosts: IntArray,
    table: LinkTable,
) -> tuple[IntArray, IntArray]:
    """NIC links of every port; half of the NIC's latency counts at each end of a trip."""
    latency = np.array([node.nic.latency if node.nic else 0.0 for node, _ in groups])
    half = latency[node_group][ports.node] / 2
    inner, outer = hosts[ports.node], wired.attachment
    nic_out = table.add_links("nic_out", inner, outer, ports.bandwidth, half + wired.entry_latency)
    nic_in = table.add_links("nic_in", outer, inner, ports.bandwidth, half)
    return nic_out, nic_in


def _at(link_of_port: IntArray, gpu_port: IntArray) -> IntArray:
    """The link of each GPU's port, -1 where there are no ports."""
    return link_of_port[gpu_port] if len(link_of_port) else gpu_port
