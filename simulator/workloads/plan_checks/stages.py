"""Do stages of unequal degrees fit together, and with the rest of the plan?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.faults import Faults
from simulator.workloads.stage_view import samples

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


def check_stages(workload: Workload) -> Faults:
    """One entry per stage, over which a micro-batch divides; and nothing that takes all stages for alike."""
    plan = workload.plan
    if not plan.stages:
        return
    if len(plan.stages) != plan.pp:
        yield "plan.stages", f"has {len(plan.stages)} entries, needs pp = {plan.pp}"
    for axis, given in (("tp", plan.tp != 1), ("dp", plan.dp is not None)):
        if given:
            yield f"plan.{axis}", "is given for each stage by plan.stages; leave it out here"
    together = samples(plan)
    for index, stage in enumerate(plan.stages):
        if together % stage.dp:
            message = (
                f"{stage.dp} does not divide the {together} samples of a micro-batch (micro_batch "
                f"{plan.micro_batch} x {together // plan.micro_batch} replicas of the stage with the most)"
            )
            yield f"plan.stages.{index}.dp", message
    if plan.sequence_parallel and all(stage.tp == 1 for stage in plan.stages):
        yield "plan.sequence_parallel", "needs a stage with tp > 1"
    if plan.order[-1] != "pp":
        yield "plan.order", "pp must be the last: stages of unequal size have their GPUs next to one another"
    yield from _check_others(workload)


def _check_others(workload: Workload) -> Faults:
    """What is not modelled beside stages of unequal degrees."""
    from simulator.program.schedules import SCHEDULES

    plan = workload.plan
    synchronisation = plan.synchronisation
    schedule = SCHEDULES.get(plan.schedule_name)
    others = {
        "plan.tp_x": plan.tp_x > 1,
        "plan.tp_z": plan.tp_z > 1,
        "plan.replica_batches": plan.replica_batches != "even",
        "plan.zero3.parts": plan.zero3.parts != "even",
        "plan.synchronisation": synchronisation.scheme != "bsp"
        or synchronisation.uses_servers
        or synchronisation.sparse != "dense",
        "plan.schedule": schedule is not None and schedule.copies > 1,
        "data": workload.data is not None,
    }
    for key, used in others.items():
        if used:
            yield key, "does not go with stages of unequal degrees (plan.stages)"


def check_stage_ranks(workload: Workload, num_gpus: int) -> Faults:
    """The GPUs of the stages are those of the cluster."""
    plan = workload.plan
    if plan.stages and plan.num_ranks != num_gpus:
        shared = f" x cp {plan.cp}" if plan.cp > 1 else ""
        terms = " + ".join(f"{stage.tp} x {stage.dp}" for stage in plan.stages)
        equation = f"tp x dp{shared} of the stages: {terms} = {plan.num_ranks} ranks"
        yield "plan.stages", f"{equation}, but the cluster has {num_gpus} GPUs"


def seen_by_stages(workload: Workload, faults: Callable[[Workload], Faults]) -> Faults:
    """What breaks rules at any stage, at the keys of the stage; of what several break, the first says so."""
    if not workload.plan.stages:
        yield from faults(workload)
        return
    found = [list(faults(view)) for view in workload.by_stage]
    first: dict[str, int] = {}
    for stage, mine in enumerate(found):
        for key, message in mine:
            own = f"plan.stages.{stage}.{key[5:]}" if key in ("plan.tp", "plan.dp") else key
            everywhere = own != key or all((key, message) in others for others in found)
            if first.setdefault(own, stage) == stage:
                yield own, message if everywhere else f"on stage {stage}: {message}"
