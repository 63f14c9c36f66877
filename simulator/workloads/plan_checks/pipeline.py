"""Do layers, chunks and schedule of the pipeline agree?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.description.faults import listing, suggestion
from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.plan import Plan
    from simulator.workloads.workload import Workload


def check_layers(workload: Workload) -> Faults:
    """Blocks divide over stages and chunks, or are laid out by hand."""
    plan, blocks = workload.plan, workload.model.num_blocks
    stages = _num_parts(plan)
    if plan.layers_per_stage is None:
        if blocks % stages:
            cut = "" if stages == plan.pp else f" x vpp {plan.vpp} = {stages}"
            message = f"{blocks} layers are not divisible by pp {plan.pp}{cut}"
            yield "plan.pp", f"{message}; give layers_per_stage to divide them unevenly"
        return
    layout = plan.layers_per_stage
    if layout == "auto":
        return
    if len(layout) not in (plan.pp, stages):
        wanted = f"pp = {plan.pp}" + (f" or pp x vpp = {stages}" if stages > plan.pp else "")
        yield "plan.layers_per_stage", f"has {len(layout)} entries, needs {wanted}"
    elif sum(layout) != blocks:
        yield "plan.layers_per_stage", f"sums to {sum(layout)}, but the model has {blocks} layers"
    elif min(layout) < 0:
        yield "plan.layers_per_stage", f"{min(layout)} is negative"


def _num_parts(plan: Plan) -> int:
    """Parts into which the schedule cuts the model."""
    from simulator.importers.pipeline_csv import ScheduleError
    from simulator.program.schedules import find_schedule

    try:
        schedule = find_schedule(plan.schedule_name)
    except (ScheduleError, OSError):
        schedule = None  # check_schedule says so
    if schedule is None or schedule.copies == 1:
        return plan.pp * plan.vpp
    return schedule.placement(plan.pp, plan.vpp).num_parts


def check_schedule(workload: Workload) -> Faults:
    """The schedule exists and agrees with the numbers of stages and chunks."""
    from simulator.importers.pipeline_csv import ScheduleError
    from simulator.program.schedules import SCHEDULES, find_schedule

    plan, name = workload.plan, workload.plan.schedule_name
    try:
        schedule = find_schedule(name)
    except (ScheduleError, OSError) as error:
        yield "plan.schedule", f"{name}: {error}"
        return
    if schedule is None:
        known = sorted(SCHEDULES)
        missing = f"there is no file {name!r}" if name.endswith(".csv") else f"unknown schedule {name!r}"
        yield "plan.schedule", f"{missing}{suggestion(name, known)} (known: {listing(known)}, or a file.csv)"
    elif schedule.num_stages not in (None, plan.pp):
        yield "plan.pp", f"{name} is for {schedule.num_stages} stages, but pp is {plan.pp}"
    elif plan.vpp > 1 and schedule.chunks == 1:
        yield "plan.vpp", f"{plan.vpp} chunks per stage need an interleaved schedule, not {name}"
    elif schedule.chunks not in (None, plan.vpp):
        yield "plan.vpp", f"{name} needs {schedule.chunks} chunks per stage, but vpp is {plan.vpp}"
    elif plan.vpp > 1 and plan.pp == 1:
        yield "plan.vpp", f"{plan.vpp} chunks per stage need pp > 1"
    elif schedule.even and plan.pp % 2:
        yield "plan.pp", f"{name} needs an even number of stages, but pp is {plan.pp}"
    elif schedule.copies > 1 and plan.zero >= 2:
        yield "plan.zero", f"{name} keeps every part of the model twice; use zero 0 or 1, not {plan.zero}"


def check_side_by_side(workload: Workload) -> Faults:
    """What `overlap.ep` runs side by side is there, and nothing else happens between its layers."""
    from simulator.program.schedules import SCHEDULES

    plan = workload.plan
    if plan.overlap.shared_expert and plan.overlap.ep:
        yield (
            "plan.overlap.shared_expert",
            "computes with the other micro-batch under overlap.ep; give one of them",
        )
    if not plan.overlap.ep:
        return
    schedule = SCHEDULES.get(plan.schedule_name)
    paired = schedule is not None and schedule.pairs
    if plan.pp > 1 and plan.vpp == 1 and not paired:
        yield "plan.overlap.ep", "needs a pipeline with vpp > 1 or schedule: dualpipe, or pp: 1"
    elif plan.schedule_name not in ("1f1b", "interleaved") and not paired:
        yield (
            "plan.overlap.ep",
            f"{plan.schedule_name} runs no forward beside a backward; use dualpipe, dualpipe-v or interleaved",
        )
    if plan.zero >= 2:
        yield (
            "plan.overlap.ep",
            f"zero {plan.zero} shares out layer by layer, which is not modelled beside another",
        )
    if plan.offload.activations:
        yield (
            "plan.overlap.ep",
            "activations that leave the GPU layer by layer are not modelled beside another",
        )
