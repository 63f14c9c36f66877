"""Can embedding tables stand where the plan puts them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


def check_tables(workload: Workload) -> Faults:
    """What rests off the GPU is dealt out, and there."""
    plan = workload.plan
    if plan.table_memory == "hbm":
        return
    if not workload.model.deals_tables:
        yield (
            "plan.table_memory",
            f"{plan.table_memory}: {workload.model.name or 'the model'} has no tables to deal out",
        )
    if plan.synchronisation.sparse != "dense":
        yield "plan.synchronisation.sparse", f"rows in {plan.table_memory} memory are updated where they are"
    if plan.offload != type(plan.offload)():
        yield "plan.offload", f"does not go with tables in {plan.table_memory} memory"


def check_dealt_tables(workload: Workload, num_gpus: int) -> Faults:
    """Tables that are dealt out are there once: their rows are never summed over copies."""
    plan = workload.plan
    dp = plan.data_parallel(num_gpus)
    if plan.ep == dp or (plan.ep == 1 and plan.table_memory == "hbm"):
        return
    if workload.model.deals_tables:
        yield (
            "plan.ep",
            f"{plan.ep}: tables are dealt out over all replicas (dp {dp}), or stand on each GPU (1)",
        )
