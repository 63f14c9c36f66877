"""Which ports the nodes of a cluster have, and the links of their NICs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simulator.hardware.links import IntArray, LinkTable
from simulator.hardware.wiring import Ports, Wiring

if TYPE_CHECKING:
    from simulator.hardware.node import Node


def place_ports(
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


def wire_nics(
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
