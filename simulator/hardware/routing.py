"""How traffic between GPUs is put on links: routes, their latency, and what rings make of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.hardware.links import FloatArray, IntArray
from simulator.hardware.scale_up import Mesh, NodeLinks
from simulator.hardware.wired import Wired
from simulator.hardware.wiring import Block


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


def routes_of(topology: Wired, source: IntArray, destination: IntArray) -> Routes:
    """See `Topology.routes`."""
    source, destination = np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
    for ids in (source, destination):
        if ids.size and not (ids.min() >= 0 and ids.max() < topology.num_gpus):
            raise ValueError(f"GPU ids must lie in 0 … {topology.num_gpus - 1}")
    same_node = topology.gpu_node[source] == topology.gpu_node[destination]
    inside = np.nonzero(same_node & (source != destination))[0]
    across = np.nonzero(~same_node)[0]
    blocks = _inside(topology, inside, source[inside], destination[inside])
    if len(across):
        blocks += _across(topology, across, source[across], destination[across])
    return _gather(blocks)


def latency_of(topology: Wired, source: IntArray, destination: IntArray) -> FloatArray:
    """See `Topology.latency`."""
    source, destination = np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
    routes = routes_of(topology, source, destination)
    weights = routes.share * topology.latency_of_link[routes.link]
    total = np.zeros(len(source))
    total += np.bincount(routes.flow, weights=weights, minlength=len(source))
    same_node = (topology.gpu_node[source] == topology.gpu_node[destination]) & (source != destination)
    for links, pick, _ in _by_group(topology, np.nonzero(same_node)[0], source):
        over_host = links.over_host(topology.gpu_local[source[pick]], topology.gpu_local[destination[pick]])
        total[pick] += np.where(over_host, links.host_latency, 0.0)
    return total


def ring_routes_of(topology: Wired, group: IntArray, source: IntArray, destination: IntArray) -> Routes:
    """See `Topology.ring_routes`."""
    group = np.asarray(group, dtype=np.int64)
    source, destination = np.asarray(source, dtype=np.int64), np.asarray(destination, dtype=np.int64)
    same_node = (topology.gpu_node[source] == topology.gpu_node[destination]) & (source != destination)
    blocks, spread = [], np.zeros(len(source), dtype=bool)
    for links, pick, first_node in _by_group(topology, np.nonzero(same_node)[0], source):
        if links.mesh is not None:
            block = _spread(
                topology, links.mesh, first_node, pick, group[pick], source[pick], destination[pick]
            )
            blocks.append(block)
            spread[block[0]] = True
    rest = np.nonzero(~spread)[0]
    routes = routes_of(topology, source[rest], destination[rest])
    return _gather([*blocks, (rest[routes.flow], routes.link, routes.share)])


def scale_up_bandwidth_of(topology: Wired, members: IntArray) -> float:
    """See `Topology.scale_up_bandwidth`."""
    members = np.asarray(members, dtype=np.int64)
    members = members[np.argsort(topology.gpu_node[members], kind="stable")]
    starts = np.flatnonzero(np.diff(topology.gpu_node[members], prepend=-1))
    distinct: dict[tuple[int, int, bytes], tuple[int, IntArray]] = {}
    for here in np.split(members, starts[1:]):
        if len(here) > 1:
            node, places = int(topology.gpu_node[here[0]]), topology.gpu_local[here]
            key = (int(topology.node_group[node]), int(topology.node_hardware[node]), places.tobytes())
            distinct.setdefault(key, (node, places))
    return min((_ring_bandwidth(topology, *one) for one in distinct.values()), default=float("inf"))


def _ring_bandwidth(topology: Wired, node: int, positions: IntArray) -> float:
    links = topology.node_links[topology.node_group[node]]
    hardware = topology.nodes[topology.node_hardware[node]]
    if links.is_switched and hardware.gpu.scale_up is not None:
        return hardware.gpu.scale_up.bandwidth
    if links.mesh is not None:
        bandwidth, _ = links.mesh.ring_usage(positions)
        if bandwidth > 0:
            return bandwidth
    root = hardware.interconnect.root_bandwidth or np.inf
    return float(min(hardware.gpu.host_link.bandwidth, root / len(positions)))


def _spread(
    topology: Wired,
    mesh: Mesh,
    first_node: int,
    flow: IntArray,
    group: IntArray,
    source: IntArray,
    destination: IntArray,
) -> Block:
    """Each flow over the links that rings through the members of its group on the node use; none if none closes."""
    node, position = topology.gpu_node[source], topology.gpu_local[source]
    team = group * topology.num_nodes + node
    members = np.unique(np.stack([np.tile(team, 2), np.concatenate([source, destination])]), axis=1)
    teams = np.unique(members[0])
    places = np.zeros((len(teams), len(mesh.lanes)), dtype=bool)
    places[np.searchsorted(teams, members[0]), topology.gpu_local[members[1]]] = True
    layouts, layout_of_team = np.unique(places, axis=0, return_inverse=True)
    usage = np.stack([mesh.ring_usage(np.nonzero(layout)[0])[1] for layout in layouts])
    share = usage[layout_of_team.ravel()[np.searchsorted(teams, team)], position]
    row, peer = np.nonzero(share)
    links = mesh.links[node[row] - first_node, mesh.number[position[row], peer]]
    return flow[row], links, share[row, peer]


def _inside(topology: Wired, flow: IntArray, source: IntArray, destination: IntArray) -> list[Block]:
    blocks: list[Block] = []
    for links, pick, first_node in _by_group(topology, np.arange(len(flow)), source):
        here = source[pick]
        node = topology.gpu_node[here] - first_node
        blocks += links.blocks(
            flow[pick], node, topology.gpu_local[here], topology.gpu_local[destination[pick]]
        )
    return blocks


def _by_group(topology: Wired, flow: IntArray, source: IntArray) -> Iterator[tuple[NodeLinks, IntArray, int]]:
    """(links inside nodes, those of the flows that start there, first node) of each group of equal nodes."""
    group = topology.node_group[topology.gpu_node[source[flow]]]
    for index, (links, first_node) in enumerate(
        zip(topology.node_links, topology.group_first_node, strict=True)
    ):
        pick = flow[group == index]
        if len(pick):
            yield links, pick, int(first_node)


def _across(topology: Wired, flow: IntArray, source: IntArray, destination: IntArray) -> list[Block]:
    key = source * np.int64(topology.num_gpus) + destination
    sender = _sender(topology, source, destination)
    handed_over = np.nonzero(sender != source)[0]
    blocks = _inside(topology, flow[handed_over], source[handed_over], sender[handed_over])
    from_port, to_port = topology.gpu_port[sender], topology.gpu_port[destination]
    behind_host = topology.nic_behind_host
    blocks.append((flow, np.where(behind_host[sender], topology.host_out[sender], -1), 1.0))
    blocks.append((flow, topology.nic_out[sender], 1.0))
    for index, link, share in topology.wiring.paths(from_port, to_port, key):
        blocks.append((flow[index], link, share))
    blocks.append((flow, topology.nic_in[destination], 1.0))
    return [*blocks, (flow, np.where(behind_host[destination], topology.host_in[destination], -1), 1.0)]


def _sender(topology: Wired, source: IntArray, destination: IntArray) -> IntArray:
    """The GPU whose NIC sends: with rails, the one of the source's node on the right rail."""
    rails = topology.wiring.rail_of_port
    if rails is None:
        return source
    node = topology.gpu_node[source]
    rail, own = rails[topology.gpu_port[destination]], rails[topology.gpu_port[source]]
    per_node = np.diff(np.append(topology.node_first_port, len(topology.ports)))[node]
    may_change = topology.joins_gpus[node] & (rail != own) & (rail < per_node)
    sender = source.copy()
    pick = np.nonzero(may_change)[0]
    # Of the GPUs that share that rail's NIC, the one at the source's place among its own NIC's.
    place = source[pick] - topology.first_gpu_of_port[topology.gpu_port[source[pick]]]
    port = topology.node_first_port[node[pick]] + rail[pick]
    sender[pick] = topology.first_gpu_of_port[port] + place % topology.num_gpus_of_port[port]
    return sender


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
