"""How many of a cluster's GPUs does a job take when nobody says? All, or as many as its batch can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.description.faults import KeyFaults

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload


def for_job(cluster: Cluster, workload: Workload) -> Cluster:
    """The cluster, or the largest part of it that the plan can run on (its dp where it gives one).

    The whole cluster where no part will do, so that its faults are the ones reported.
    """
    if not workload.faults_on(cluster.num_gpus):
        return cluster
    plan = workload.plan
    most = cluster.num_gpus // plan.model_ranks
    for replicas in range(most, 0, -1) if plan.dp is None else (plan.dp,):
        gpus = replicas * plan.model_ranks
        if gpus <= cluster.num_gpus and not workload.faults_on(gpus):
            try:
                return cluster.scaled(gpus=gpus)
            except KeyFaults:  # no whole number of nodes
                continue
    return cluster
