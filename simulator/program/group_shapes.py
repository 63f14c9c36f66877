"""What shape do process groups have on the machine: ranks, nodes, the bandwidths inside and between them?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives import GroupShape
from simulator.hardware.topology import Topology

Ints = NDArray[np.int64]


def group_shapes(topology: Topology, members: Ints) -> tuple[list[GroupShape], Ints]:
    """Distinct `GroupShape`s among the groups [groups, n] and the index of each group's."""
    nodes = topology.gpu_node[members]
    order = np.argsort(nodes, axis=1, kind="stable")
    ordered = np.take_along_axis(nodes, order, axis=1)
    starts = np.ones(ordered.shape, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    num_nodes = starts.sum(axis=1)
    run = np.cumsum(starts, axis=1) - 1
    counts = np.zeros((len(members), int(num_nodes.max())), dtype=np.int64)
    np.add.at(counts, (np.repeat(np.arange(len(members)), members.shape[1]), run.ravel()), 1)
    fullest = counts.max(axis=1)
    # NICs and hardware follow from where the members sit inside their nodes: one signature per distinct layout.
    local = np.sort(topology.gpu_local[members], axis=1)
    hardware = np.sort(topology.gpu_hardware[members], axis=1)
    signature = np.column_stack([num_nodes, fullest, _row_hash(local), _row_hash(hardware)])
    _, first, which = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    # Groups of one size run in step with one another, so the longest path among them counts for all of them.
    spread = topology.latency(members[:, 0], members[:, -1])
    longest = {int(n): float(spread[num_nodes == n].max()) for n in np.unique(num_nodes)}
    found = [
        _shape(topology, members[g], int(num_nodes[g]), int(fullest[g]), longest[int(num_nodes[g])])
        for g in first
    ]
    shapes = list(dict.fromkeys(found))
    return shapes, np.array([shapes.index(shape) for shape in found], dtype=np.int64)[which.ravel()]


def _shape(topology: Topology, members: Ints, num_nodes: int, fullest: int, latency: float) -> GroupShape:
    """The shape of one group; bandwidths are those of its slowest node."""
    nodes = topology.gpu_node[members]
    node = topology.nodes[int(topology.node_hardware[nodes[0]])]
    scale_up = [topology.hardware[int(h)].scale_up for h in np.unique(topology.gpu_hardware[members])]
    hosts = [topology.hardware[int(h)].host_link for h in np.unique(topology.gpu_hardware[members])]
    ways = scale_up if node.interconnect.kind in ("nvswitch", "nvlink_mesh") else hosts
    nic, num_nics = _nics(topology, members) if num_nodes > 1 else (0.0, 0)
    return GroupShape(
        num_ranks=len(members),
        num_nodes=num_nodes,
        ranks_per_node=fullest,
        scale_up_kind=node.interconnect.kind,
        in_network_reduction=node.interconnect.in_network_reduction,
        scale_up_bandwidth=min(
            (topology.scale_up_bandwidth(members), *(w.bandwidth for w in ways if w is not None))
        ),
        nic_bandwidth=nic,
        num_nics=num_nics,
        hop_latency=latency if num_nodes > 1 else 0.0,
    )


def _nics(topology: Topology, members: Ints) -> tuple[float, int]:
    """Bytes/s of all NICs that the members of one node use, the slowest node's, and how many those are."""
    num_ports = len(topology.ports)
    pairs = np.unique(topology.gpu_node[members] * num_ports + topology.gpu_port[members])
    starts = np.flatnonzero(np.diff(pairs // num_ports, prepend=-1))
    rates = np.add.reduceat(topology.ports.bandwidth[pairs % num_ports], starts)
    slowest = int(rates.argmin())
    return float(rates[slowest]), int(np.diff(starts, append=len(pairs))[slowest])


def _row_hash(rows: Ints) -> Ints:
    """A 62-bit number per row, equal for equal rows."""
    weights = np.arange(1, rows.shape[1] + 1, dtype=np.int64) * 0x9E3779B1 % (1 << 31)
    return (rows + 1) @ weights
