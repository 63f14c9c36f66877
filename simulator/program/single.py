"""The program of a single collective over all GPUs of a cluster, some of which may have slower links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simulator.costs.collectives import CollectiveCalibration, CollectiveCost, GroupShape, collective_cost
from simulator.hardware.cluster import Cluster
from simulator.hardware.topology import Topology, build_topology
from simulator.program.builder import resources_of
from simulator.program.chains import transfer_phases
from simulator.program.communicators import Communicators
from simulator.program.draft import Draft
from simulator.program.program import Program
from simulator.ranks.grid import Grid


def collective_program(
    cluster: Cluster,
    op: str,
    size: float,
    library: CollectiveCalibration,
    slow: Mapping[int, float] | None = None,
    fold: bool = True,
) -> Program:
    """`op` on `size` bytes (conventions: operators.Collective) over all GPUs, GPU by GPU the same work.

    `slow`: GPU → factor below 1 on the rate of its own links (scale-up, host, NIC), both ways: a straggler. Folded like
    any other program, so the cost grows with the kinds of GPUs, not with their number.
    Raises ValueError for GPUs that are not there, and where the library cannot do it.
    """
    topology = _slowed(build_topology(cluster), slow or {})

    def cost(op: str, size: float, shape: GroupShape) -> CollectiveCost:
        return collective_cost(op, size, shape, library)

    grid = Grid(dp=cluster.num_gpus)
    folded = Communicators(grid, topology, cost).fold([("dp", op, size)], fold)
    members = np.bincount(folded.folding.rank_class).tolist()
    names = [f"rank {rank}" for rank in folded.representatives.tolist()]
    draft = Draft(resources_of(folded), names, members)
    for rank_class in range(folded.num_classes):
        transfer = folded.transfer("dp", op, size, rank_class)
        if transfer is not None:
            draft.meet(op, rank_class, ("dp",), transfer_phases(transfer, "dp", op, ()))
    return draft.finish()


def _slowed(topology: Topology, slow: Mapping[int, float]) -> Topology:
    """The topology with slower own links of some GPUs."""
    if not slow:
        return topology
    capacity = topology.capacity.copy()
    for gpu, factor in slow.items():
        if not 0 <= gpu < topology.num_gpus:
            raise ValueError(f"there is no GPU {gpu} (0 to {topology.num_gpus - 1})")
        own = [
            ends[gpu]
            for ends in (
                topology.scale_up_out,
                topology.scale_up_in,
                topology.host_out,
                topology.host_in,
                topology.nic_out,
                topology.nic_in,
            )
        ]
        links = np.unique([link for link in own if link >= 0])
        capacity[links] *= factor
    return replace(topology, capacity=capacity)
