"""From a workload on a cluster to the program of one training step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.collectives import CollectiveCalibration, CollectiveCost, GroupShape, collective_cost
from simulator.costs.kernels import calibration_for
from simulator.costs.software import SoftwareProfile
from simulator.hardware.cluster import Cluster
from simulator.hardware.topology import build_topology
from simulator.program.communicators import Communicators, FoldedCommunicators
from simulator.program.draft import Draft
from simulator.program.pricing import ClassPricing
from simulator.program.program import Program, Resource
from simulator.program.setting import Setting
from simulator.program.step import Step
from simulator.ranks.grid import Grid
from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class BuildOptions:
    """`fold`: simulate interchangeable ranks once. `collapse`: chains that meet nobody become one task."""

    fold: bool = True
    collapse: bool = True


@dataclass(frozen=True)
class Built:
    """The program with what it was built from."""

    program: Program
    setting: Setting
    communicators: FoldedCommunicators
    stage_of_class: tuple[int, ...]


def build(
    cluster: Cluster,
    workload: Workload,
    software: SoftwareProfile,
    library: CollectiveCalibration,
    options: BuildOptions = BuildOptions(),
) -> Built:
    """The program of one step. The plan must fit the cluster (`Workload.faults_on` is empty)."""
    plan = workload.plan
    grid = Grid(plan.tp, plan.cp, plan.data_parallel(cluster.num_gpus), plan.pp, plan.ep, plan.order)
    setting = Setting(
        workload, software, grid, workload.num_micro_batches(cluster.num_gpus), options.collapse
    )
    topology = build_topology(cluster)

    def cost(op: str, size: float, shape: GroupShape) -> CollectiveCost:
        return collective_cost(op, size, shape, library)

    stages = grid.coordinate("pp")
    colour = stages * len(topology.hardware) + topology.gpu_hardware
    folded = Communicators(grid, topology, cost).fold(setting.requests(), colour, options.fold)
    setting.communicators = folded
    stage_of_class = tuple(int(stages[rank]) for rank in folded.representatives)
    members = np.bincount(folded.folding.rank_class).tolist()
    names = tuple(
        f"stage {stage} (rank {rank})"
        for stage, rank in zip(stage_of_class, folded.representatives, strict=True)
    )
    setting.draft = Draft(_resources(folded), names, members)
    for rank_class, stage in enumerate(stage_of_class):
        gpu = topology.hardware[int(topology.gpu_hardware[folded.representatives[rank_class]])]
        pricing = ClassPricing(rank_class, gpu, calibration_for(gpu), software, folded)
        Step(setting, pricing, stage).build()
    return Built(setting.draft.finish(), setting, folded, stage_of_class)


def _resources(folded: FoldedCommunicators) -> list[Resource]:
    """One GPU per rank class, then one link per link class."""
    topology, folding = folded.communicators.topology, folded.folding
    ranks = np.bincount(folding.rank_class).tolist()
    resources = [
        Resource(f"gpu {rank}", "gpu", 1.0, n) for rank, n in zip(folded.representatives, ranks, strict=True)
    ]
    sizes = np.bincount(folding.link_class, minlength=len(folded.link_representatives)).tolist()
    for link, count in zip(folded.link_representatives.tolist(), sizes, strict=True):
        name, kind = topology.link_name(link), topology.link_kind(link)
        resources.append(Resource(name, kind, float(topology.capacity[link]), count))
    return resources
