"""Predicts how long one training step takes on a GPU cluster, what limits it, and what would do better.

cluster = load_cluster("selene", gpus=1024)
workload = load_workload("gpt3-175b", {"plan.tp": 8})
print(simulate(cluster, workload).step_time_s)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.results.prediction import Prediction
    from simulator.workloads.workload import Workload

__version__ = "0.1.0"

__all__ = ["load_cluster", "load_workload", "simulate"]


def load_cluster(
    name_or_path: str, gpus: int | None = None, overrides: Mapping[str, Any] | None = None
) -> Cluster:
    """The cluster of that catalogue name or path, with `gpus` GPUs if given.

    `overrides` maps keys such as `node.nic.bandwidth` to values. Raises DescriptionError.
    """
    from simulator.description import DescriptionError, KeyFaults, load
    from simulator.description.faults import Place, fault_at

    cluster: Cluster = load("cluster", name_or_path, overrides)
    if gpus is None:
        return cluster
    try:
        return cluster.scaled(gpus=gpus)
    except KeyFaults as error:
        place = Place(f"--gpus {gpus}")
        raise DescriptionError(fault_at(place, key, message) for key, message in error.faults) from None


def load_workload(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Workload:
    """The workload of that catalogue name or path.

    `overrides` maps keys such as `global_batch`, `plan.tp` or `model.layers` to values. Raises DescriptionError.
    """
    from simulator.description import load

    workload: Workload = load("workload", name_or_path, overrides)
    return workload


def simulate(cluster: Cluster, workload: Workload) -> Prediction:
    """The prediction of one training step of `workload` on `cluster`.

    Raises DescriptionError where the plan cannot run there; not fitting in memory is part of the prediction.
    """
    from simulator.simulation import simulate as run

    return run(cluster, workload)
