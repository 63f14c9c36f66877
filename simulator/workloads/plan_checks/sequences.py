"""Can the plan cut sequences of this length, and exchange their parts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


def check_sequence(workload: Workload) -> Faults:
    """The sequence fits the model and divides over cp (two halves each, for balance) and tp."""
    plan, length = workload.plan, workload.sequence_length
    longest = workload.model.longest_sequence
    if longest is not None and length > longest:
        yield "sequence_length", f"{length} is longer than the model's position table of {longest}"
    if workload.data is not None and workload.data.padding != "full":
        return  # rows are filled up to what divides
    zigzag = plan.cp > 1 and plan.context_layout == "zigzag"
    parts = 2 * plan.cp if zigzag else plan.cp
    if length % parts:
        yield "plan.cp", f"sequence_length {length} is not divisible by {'2 x ' * zigzag}cp = {parts}"
    elif plan.sequence_parallel and (length // plan.cp) % plan.tp:
        yield (
            "plan.tp",
            f"{plan.tp} does not divide the {length // plan.cp} tokens of a sequence (sequence_parallel)",
        )


def check_context_exchange(workload: Workload) -> Faults:
    """An exchange of heads divides them; a ring needs a fused kernel."""
    plan = workload.plan
    exchange, heads = plan.context_exchange, workload.model.attention_heads
    if plan.ulysses is not None and exchange != "usp":
        yield "plan.ulysses", f"is for context_exchange: usp, which is {exchange}"
    if plan.cp == 1 or heads is None:
        return
    if exchange == "usp" and plan.ulysses is None:
        yield "plan.ulysses", "usp needs it: GPUs of cp that exchange heads for tokens"
    elif exchange == "usp" and plan.cp % (plan.ulysses or 1):
        yield "plan.ulysses", f"{plan.ulysses} does not divide cp {plan.cp}"
    ways, name = {"all_to_all": (plan.cp, "cp"), "usp": (plan.ulysses or 1, "ulysses")}.get(exchange, (1, ""))
    if heads % (plan.tp * ways):
        yield f"plan.{name}", f"{exchange} needs heads {heads} divisible by tp {plan.tp} x {name} {ways}"
    if exchange in ("ring", "usp") and plan.attention == "unfused":
        yield (
            "plan.context_exchange",
            f"{exchange} needs attention: flash; unfused attention can use all_gather",
        )
