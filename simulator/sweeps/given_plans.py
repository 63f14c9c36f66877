"""Bounds of plans that somebody wrote, which may have settings that the closed form does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simulator.program.schedules import SCHEDULES
from simulator.sweeps.bound import Bound, Bounds
from simulator.sweeps.plan_table import table_of
from simulator.sweeps.price_book import PriceBook

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.plan import Plan
    from simulator.workloads.workload import Workload


def unbounded(workload: Workload) -> tuple[str, str] | None:
    """(key, what of it has no lower bound), None where the closed form knows everything."""
    plan = workload.plan
    if workload.data is not None:
        return "data", "micro-batches of unequal documents have"
    if plan.stages:
        return "plan.stages", "stages of unequal degrees have"
    if plan.table_memory != "hbm":
        return "plan.table_memory", f"tables in {plan.table_memory} memory have"
    if not plan.synchronisation.has_bound:
        return "plan.synchronisation", f"{plan.synchronisation.what} has"
    if plan.schedule_name not in SCHEDULES:
        return "plan.schedule", f"{plan.schedule_name} has"
    return None


def bounds_of(cluster: Cluster, workload: Workload, plans: Sequence[Plan]) -> Bounds:
    """The bounds of plans that can run; zero for all where the closed form does not know one of them."""
    jobs = [workload.model_copy(update={"plan": plan}) for plan in plans]
    if not plans or any(map(unbounded, jobs)):
        nothing = np.zeros(len(plans))
        return Bounds(nothing, nothing, nothing)
    return Bound(PriceBook(cluster, workload)).of(table_of(workload, cluster.num_gpus, plans))
