"""What the host side of each node offers: memory, disks, cores, a server process, as shared resources like links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.hardware.links import IntArray, LinkTable

if TYPE_CHECKING:
    from simulator.hardware.node import Node


@dataclass(frozen=True, slots=True)
class HostLinks:
    """Ids by node, -1 where the node's description does not say: DRAM and disks in bytes/s, CPU in core-seconds/s.

    `server` is a process that holds parameters: a second of it per second.
    """

    dram: IntArray
    cpu: IntArray
    disk_read: IntArray
    disk_write: IntArray
    server: IntArray


def wire_hosts(
    groups: Sequence[tuple[Node, int]], node_group: IntArray, hosts: IntArray, table: LinkTable
) -> HostLinks:
    """Add the resources of the hosts; `hosts` [node] are vertices, `node_group` [node] indices into `groups`."""
    found = {
        name: np.full(len(hosts), -1, dtype=np.int64)
        for name in ("dram", "cpu", "server", "disk_read", "disk_write")
    }
    for index, (node, _) in enumerate(groups):
        here = np.nonzero(node_group == index)[0]
        offered: dict[str, float] = {}
        if node.cpu is not None:
            offered |= {"dram": node.cpu.memory_bandwidth, "cpu": float(node.cpu.cores), "server": 1.0}
        if node.storage is not None:
            offered |= {"disk_read": node.storage.read_bandwidth, "disk_write": node.storage.write_bandwidth}
        for name, capacity in offered.items():
            found[name][here] = table.add_links(name, hosts[here], hosts[here], capacity)
    return HostLinks(**found)
