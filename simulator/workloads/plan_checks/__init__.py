"""What makes a plan impossible: one function per rule, each yielding (key, message) faults with the numbers.

Keys are relative to the workload (`plan.tp`, `global_batch`). Rules that need no cluster are `WORKLOAD_CHECKS`; those
of `CLUSTER_CHECKS` also need the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.batches import check_batch
from simulator.workloads.plan_checks.degrees import (
    check_expert_group,
    check_experts,
    check_model_sharding,
    check_order,
    check_ranks,
    check_sequence_parallel,
    check_tensor_grid,
)
from simulator.workloads.plan_checks.documents import check_data, check_dealing
from simulator.workloads.plan_checks.faults import Faults
from simulator.workloads.plan_checks.number_formats import (
    check_parameter_type,
    check_scaling,
    check_wide_ends,
)
from simulator.workloads.plan_checks.pipeline import check_layers, check_schedule, check_side_by_side
from simulator.workloads.plan_checks.recomputation import check_recompute
from simulator.workloads.plan_checks.replicas import check_replicas, check_synchronisation
from simulator.workloads.plan_checks.sequences import check_context_exchange, check_sequence
from simulator.workloads.plan_checks.sharding import (
    check_offload,
    check_shard_group,
    check_shard_parts,
    check_unsharded,
    check_zero,
)
from simulator.workloads.plan_checks.stages import check_stage_ranks, check_stages, seen_by_stages
from simulator.workloads.plan_checks.tables import check_dealt_tables, check_tables

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload

Check = Callable[["Workload"], Faults]

WORKLOAD_CHECKS: tuple[Check, ...] = (
    check_model_sharding,
    check_tensor_grid,
    check_experts,
    check_sequence,
    check_data,
    check_dealing,
    check_context_exchange,
    check_layers,
    check_schedule,
    check_side_by_side,
    check_sequence_parallel,
    check_zero,
    check_unsharded,
    check_offload,
    check_synchronisation,
    check_tables,
    check_scaling,
    check_wide_ends,
    check_parameter_type,
    check_order,
    check_recompute,
)
CLUSTER_CHECKS: tuple[Callable[[Workload, int], Faults], ...] = (
    check_ranks,
    check_replicas,
    check_batch,
    check_expert_group,
    check_shard_group,
    check_shard_parts,
    check_dealt_tables,
)


def workload_faults(workload: Workload) -> list[tuple[str, str]]:
    """All faults of the plan whatever the cluster; stages that do not fit together hide what follows from it."""
    wrong = list(check_stages(workload))
    return wrong or list(seen_by_stages(workload, _workload_faults))


def cluster_faults(workload: Workload, num_gpus: int) -> list[tuple[str, str]]:
    """All faults of the plan on that many GPUs; a wrong product of degrees hides what follows from it."""
    product = check_stage_ranks if workload.plan.stages else check_ranks
    wrong = list(product(workload, num_gpus))
    return wrong or list(seen_by_stages(workload, lambda view: _cluster_faults(view, num_gpus)))


def _workload_faults(workload: Workload) -> Faults:
    return (fault for check in WORKLOAD_CHECKS for fault in check(workload))


def _cluster_faults(workload: Workload, num_gpus: int) -> Faults:
    return (fault for check in CLUSTER_CHECKS[1:] for fault in check(workload, num_gpus))
