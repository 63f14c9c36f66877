"""Is the global batch whole micro-batches on every replica, as many as the schedule needs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.plan import Plan
    from simulator.workloads.workload import Workload


def check_batch(workload: Workload, num_gpus: int) -> Faults:
    """The global batch is whole micro-batches on every replica, and enough of them for the schedule."""
    plan = workload.plan
    dp = plan.contributing(num_gpus)
    step = plan.micro_batch * dp
    if plan.replica_batches != "even":
        yield from _check_uneven_batches(workload, dp)
        return
    if workload.deals:
        return  # check_dealing says what does not go with it
    samples = f"global_batch {workload.global_batch}"
    if workload.data is not None:
        samples = f"{len(workload.rows)} rows of documents"
    elif workload.global_batch % step:
        message = (
            f"{workload.global_batch} is not divisible by micro_batch {plan.micro_batch} x dp {dp} = {step}"
        )
        yield "global_batch", message
        return
    count = workload.num_micro_batches(num_gpus)
    fixed = _fixed_micro_batches(plan)
    if fixed not in (None, count):
        yield "plan.schedule", f"{plan.schedule_name} is for {fixed} micro-batches, but there are {count}"
    if _needs_even(plan) and count % 2:
        message = f"{plan.schedule_name} sends half of the micro-batches each way, but there are {count}"
        yield "plan.schedule", message
    if plan.schedule_name == "interleaved" and plan.pp > 1 and count % plan.pp:
        message = (
            f"interleaved needs micro-batches in groups of pp {plan.pp}, but there are {count}: "
            f"{samples} / (micro_batch {plan.micro_batch} x dp {dp})"
        )
        yield "plan.schedule", message


def _check_uneven_batches(workload: Workload, dp: int) -> Faults:
    """Uneven replicas: whole micro-batches in all, at least one each; and nothing that every micro-batch shares."""
    plan = workload.plan
    total, rest = divmod(workload.global_batch, plan.micro_batch)
    given = plan.replica_batches
    if rest:
        yield "global_batch", f"{workload.global_batch} is not divisible by micro_batch {plan.micro_batch}"
    elif total < dp:
        yield "global_batch", f"{total} micro-batches do not give one to each of {dp} replicas"
    elif not isinstance(given, str) and (len(given) != dp or sum(given) != total or min(given) < 1):
        wanted = f"{dp} numbers of at least 1 that add up to {total}"
        yield "plan.replica_batches", f"{list(given)}: needs {wanted} (global_batch / micro_batch)"
    if plan.zero > 1:
        yield (
            "plan.zero",
            f"zero {plan.zero} meets after every micro-batch, of which replicas have unequal numbers",
        )
    if _needs_even(plan):
        yield "plan.schedule", f"{plan.schedule_name} needs equal and even numbers of micro-batches"
    if plan.schedule_name == "interleaved" and plan.pp > 1:
        yield (
            "plan.schedule",
            "interleaved needs equal numbers of micro-batches, but replica_batches are uneven",
        )


def _needs_even(plan: Plan) -> bool:
    from simulator.program.schedules import SCHEDULES

    schedule = SCHEDULES.get(plan.schedule_name)
    return schedule is not None and schedule.even


def _fixed_micro_batches(plan: Plan) -> int | None:
    from simulator.program.schedules import find_schedule

    schedule = find_schedule(plan.schedule_name)
    return None if schedule is None else schedule.num_micro_batches
