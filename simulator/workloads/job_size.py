"""How many of a cluster's GPUs does a job take when nobody says? All, or as many as its batch can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.description.faults import KeyFaults

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload


def for_job(cluster: Cluster, workload: Workload) -> Cluster:
    """The cluster, or the largest part of it that the plan can run on (of its own size where it gives dp).

    The whole cluster where no part will do, so that its faults are the ones reported.
    """
    if not workload.faults_on(cluster.num_gpus):
        return cluster
    plan = workload.plan
    replica, most = plan.model_ranks, cluster.num_gpus
    sizes = range(most - most % replica, 0, -replica) if plan.num_ranks is None else (plan.num_ranks,)
    for gpus in sizes:
        if gpus <= cluster.num_gpus and not workload.faults_on(gpus):
            try:
                return cluster.scaled(gpus=gpus)
            except KeyFaults:  # no whole number of nodes
                continue
    return cluster
