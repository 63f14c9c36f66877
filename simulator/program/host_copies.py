"""What moves between a GPU, its host's memory and the host's disks, and what the host's CPU computes meanwhile.

Each operation draws on the links of one rank: its host link, its node's DRAM, disks and cores, which the GPUs of a node
share. `amount` per byte of work; what a link achieves of its rated bandwidth is part of the amount.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from simulator.hardware.topology import Topology
from simulator.ranks.folding import GroupLayer

if TYPE_CHECKING:
    from simulator.hardware.node import Node
    from simulator.workloads.plan import Plan

AXIS = "host"
"""The axis of these operations: every rank is a group of its own."""

HOST_LINK = 0.83
"""Of a host link's rate, what large copies to and from pinned memory achieve: 26 of 31.5 GB/s over PCIe 4.0 x16, as
CUDA's bandwidthTest reports for it."""
DRAM = 0.8
"""Of peak memory bandwidth, what STREAM-like access achieves on servers."""
CPU_ADAM_CORE_SECONDS = 1.0 / 14e6 / 28.0
"""Core-seconds per byte that CPU Adam moves: 1.5e9 parameters/s on a node of 112 cores (DeepCompile, arXiv
2504.09983, offload of Llama-3 70B), 28 bytes per parameter."""
LATENCY = 10e-6
"""Seconds from the request of a copy to its first byte."""

OPERATIONS: dict[str, tuple[tuple[str, float], ...]] = {
    "to_host": (("host_out", 1.0 / HOST_LINK), ("dram", 1.0 / DRAM)),
    "from_host": (("host_in", 1.0 / HOST_LINK), ("dram", 1.0 / DRAM)),
    "to_disk": (("disk_write", 1.0), ("dram", 1.0 / DRAM)),
    "from_disk": (("disk_read", 1.0), ("dram", 1.0 / DRAM)),
    "cpu_adam": (("cpu", CPU_ADAM_CORE_SECONDS), ("dram", 1.0 / DRAM)),
}


UPLINKS = {"host_out": "uplink_out", "host_in": "uplink_in"}
"""A GPU's own link to the host, and the one behind it that it may share with its neighbours."""


def lacking(node: Node, plan: Plan) -> Iterator[str]:
    """What a node's description lacks for a plan's offloading."""
    offload = plan.offload
    used = (
        offload.optimizer != "none",
        offload.parameters != "none",
        offload.activations > 0.0,
        plan.table_memory != "hbm",
    )
    name = node.name or "the node"
    if any(used) and node.cpu is None:
        yield f"{name} does not describe its host (cpu: cores, memory, memory_bandwidth)"
    disks = (offload.optimizer != "none" and offload.optimizer_tier == "nvme", offload.parameters == "nvme")
    if any(disks) and node.storage is None:
        yield f"{name} does not describe its disks (storage: read_bandwidth, write_bandwidth)"


def copy_layer(topology: Topology, op: str) -> GroupLayer:
    """The links that every rank's `op` draws on.

    `pooled_in n` and `pooled_out n` move sums of n rows each, which memory reads, or reads and writes, on the spot.
    Raises ValueError where a node lacks what it needs (see `lacking`).
    """
    ranks = np.arange(topology.num_gpus, dtype=np.int64)
    groups, links, amounts = [], [], []
    for name, amount in OPERATIONS[op] if op in OPERATIONS else _pooled(op):
        if name in UPLINKS:
            drawn = [getattr(topology, name), getattr(topology, UPLINKS[name])]
        else:
            drawn = [getattr(topology.host, name)[topology.gpu_node]]
        if (drawn[0] < 0).any():
            raise ValueError(f"{op} needs {name}, which a node does not describe")
        for found in drawn:
            there = np.flatnonzero(found >= 0)
            groups.append(ranks[there])
            links.append(found[there])
            amounts.append(np.full(len(there), amount))
    group = np.concatenate(groups)
    order = np.argsort(group, kind="stable")
    return GroupLayer(
        ranks[:, None],
        group[order],
        np.concatenate(links)[order],
        np.concatenate(amounts)[order],
        np.zeros(len(ranks), dtype=np.int64),
    )


def _pooled(op: str) -> tuple[tuple[str, float], ...]:
    """What a byte of sums draws on."""
    direction, rows = op.split()
    if direction == "pooled_in":
        return ("host_in", 1.0 / HOST_LINK), ("dram", float(rows) / DRAM)
    return ("host_out", 1.0 / HOST_LINK), ("dram", 2.0 * float(rows) / DRAM)
