"""Do the ways in which replicas agree go with one another and with the plan?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.faults import Faults
from simulator.workloads.synchronisation import Synchronisation, strides

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


_WITHIN = {
    "cp": "the GPUs that share a sequence would sum gradients among themselves first, which is modelled for bsp by "
    "collectives alone",
    "ep": "replicas share out experts or tables, of which none has all to send or to average",
}
"""Why axes inside a replica go with synchronous sums by collectives alone."""


def check_synchronisation(workload: Workload) -> Faults:
    """Options go with their scheme; replicas that differ in parameters share out nothing and flush."""
    plan, synchronisation = workload.plan, workload.plan.synchronisation
    key, scheme = "plan.synchronisation", synchronisation.scheme
    owners = {
        "every": "local",
        "group": "groups",
        "shuffle": "groups",
        "neighbours": "gossip",
        "backup": "backup",
    }
    for option, owner in owners.items():
        if _is_set(synchronisation, option) and scheme != owner:
            yield f"{key}.{option}", f"is for scheme: {owner}, which is {scheme}"
    if scheme == "groups" and synchronisation.group is None:
        yield f"{key}.group", "groups needs it: how many replicas average together"
    if synchronisation.averages_parameters and synchronisation.encodes:
        yield f"{key}.compression", f"is for gradients, but {scheme} exchanges parameters"
    yield from _check_servers(workload)
    if scheme == "bsp":
        return
    if scheme not in ("backup", "asp") and plan.zero:
        yield (
            "plan.zero",
            f"zero {plan.zero} shares out what replicas have in common, but under {scheme} they differ",
        )
    for axis, why in _WITHIN.items():
        if getattr(plan, axis) > 1:
            yield (
                f"plan.{axis}",
                f"{axis} {getattr(plan, axis)} does not go with synchronisation scheme {scheme}: {why}",
            )
    from simulator.program.schedules import find_schedule

    schedule = find_schedule(plan.schedule_name) if not plan.schedule_name.endswith(".csv") else None
    if plan.overlap.steps or (schedule is not None and not schedule.flushes):
        yield key + ".scheme", f"{scheme} needs steps that end (no overlap.steps, a schedule that flushes)"
    if plan.replica_batches != "even" and scheme == "backup":
        yield "plan.replica_batches", "backup replicas stand in for one another: even batches only"


def _is_set(synchronisation: Synchronisation, option: str) -> bool:
    return bool(getattr(synchronisation, option) != type(synchronisation).model_fields[option].default)


def _check_servers(workload: Workload) -> Faults:
    """What servers hold is not shared out too, and sparse gradients need tables."""
    plan, synchronisation, key = workload.plan, workload.plan.synchronisation, "plan.synchronisation"
    if synchronisation.sparse != "dense" and not workload.model.has_tables:
        yield f"{key}.sparse", f"{synchronisation.sparse} needs a model with tables; this one has none"
    if synchronisation.scheme == "asp" and (
        synchronisation.dense != "servers" or synchronisation.sparse == "gathered"
    ):
        yield f"{key}.scheme", "asp needs servers (dense: servers, and sparse: servers for tables)"
    for option in ("servers", "table_parts", "local_aggregation"):
        if _is_set(synchronisation, option) and not synchronisation.uses_servers:
            yield f"{key}.{option}", "is for dense or sparse: servers"
    if synchronisation.dense == "collectives" and synchronisation.sparse == "dense":
        return
    if plan.zero:
        yield "plan.zero", f"zero {plan.zero} does not go with parameters on servers, or sparse gradients"
    for axis, why in _WITHIN.items():
        if getattr(plan, axis) > 1:
            given = f"{axis} {getattr(plan, axis)}"
            yield f"plan.{axis}", f"{given} does not go with servers or sparse gradients: {why}"
    if synchronisation.averages_parameters:
        yield f"{key}.scheme", f"{synchronisation.scheme} exchanges parameters, not gradients"
    if synchronisation.dense == "servers" and synchronisation.encodes:
        yield f"{key}.dense", "servers take gradients as they are summed, neither narrower nor compressed"


def check_replicas(workload: Workload, num_gpus: int) -> Faults:
    """There are replicas to spare, or as many as groups and neighbours need."""
    plan, synchronisation = workload.plan, workload.plan.synchronisation
    dp, key = plan.data_parallel(num_gpus), "plan.synchronisation"
    if synchronisation.scheme == "backup" and synchronisation.backup >= dp:
        yield f"{key}.backup", f"{synchronisation.backup} of dp {dp} replicas leaves none to wait for"
    if synchronisation.scheme == "gossip" and synchronisation.neighbours >= dp > 1:
        yield f"{key}.neighbours", f"{synchronisation.neighbours} is more than the other {dp - 1} of dp {dp}"
    group = synchronisation.group
    if synchronisation.scheme != "groups" or group is None or group >= dp:
        return
    if synchronisation.shuffle == "rotate" and dp % group:
        yield f"{key}.group", f"{group} does not divide dp {dp}"
    if synchronisation.shuffle == "stride":
        try:
            strides(dp, group)
        except ValueError as error:
            yield f"{key}.group", str(error)
