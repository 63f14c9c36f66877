"""Do the degrees multiply to the GPUs, and divide what they split?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.plan import Plan
    from simulator.workloads.workload import Workload


def check_ranks(workload: Workload, num_gpus: int) -> Faults:
    """The degrees multiply to the number of GPUs."""
    plan = workload.plan
    if plan.dp is None:
        if num_gpus % plan.model_ranks:
            equation = f"tp {_tensor(plan)} x pp {plan.pp} x cp {plan.cp} = {plan.model_ranks}"
            yield "plan.tp", f"{equation} ranks per replica do not divide the {num_gpus} GPUs of the cluster"
        return
    ranks = plan.model_ranks * plan.dp
    if ranks != num_gpus:
        equation = f"tp {_tensor(plan)} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp} = {ranks} ranks"
        key = next(
            (f"plan.{axis}" for axis in ("dp", "pp", "tp", "cp") if getattr(plan, axis) != 1), "plan.dp"
        )
        yield key, f"{equation}, but the cluster has {num_gpus} GPUs"


def _tensor(plan: Plan) -> str:
    if plan.tensor_ranks == plan.tp:
        return str(plan.tp)
    return f"{plan.tp} x tp_x {plan.tp_x} x tp_z {plan.tp_z}"


def check_order(workload: Workload) -> Faults:
    """Each axis stands once in the order."""
    order = workload.plan.order
    if sorted(order) != ["cp", "dp", "pp", "tp"]:
        yield "plan.order", f"must have tp, cp, dp and pp once each, has {', '.join(order)}"


def check_model_sharding(workload: Workload) -> Faults:
    """Heads, feed-forward width, experts divide by the degrees."""
    plan = workload.plan
    for key, message in workload.model.sharding_faults(plan.tp, plan.cp, plan.ep, plan.experts.tp):
        yield f"plan.{key}", message


def check_tensor_grid(workload: Workload) -> Faults:
    """More dimensions of tensor parallelism: widths and samples divide, and nothing else splits tokens."""
    plan, model = workload.plan, workload.model
    if plan.tp_x * plan.tp_z == 1:
        return
    key = "plan.tp_x" if plan.tp_x > 1 else "plan.tp_z"
    if not model.splits_over_grid:
        yield key, f"{model.name or 'this model'} splits over tp alone"
    for other, used in (("sequence_parallel", plan.sequence_parallel), ("cp", plan.cp > 1)):
        if used:
            yield key, f"does not go with {other}: tp_z splits samples, whose tokens stay together"
    if plan.micro_batch % plan.tp_z:
        yield "plan.tp_z", f"{plan.tp_z} does not divide micro_batch {plan.micro_batch}"
    hidden = getattr(model, "hidden", plan.tp_x)
    if hidden % plan.tp_x:
        yield "plan.tp_x", f"{plan.tp_x} does not divide hidden {hidden}"


def check_sequence_parallel(workload: Workload) -> Faults:
    """Sequence parallelism splits over the tensor-parallel group."""
    if workload.plan.sequence_parallel and workload.plan.tp == 1:
        yield "plan.sequence_parallel", "needs tp > 1, but tp is 1"


def check_experts(workload: Workload) -> Faults:
    """GPUs that split an expert are among those that split other layers, and route different tokens if fewer."""
    plan = workload.plan
    if plan.experts.domain is not None and plan.ep % plan.experts.domain:
        yield "plan.experts.domain", f"{plan.experts.domain} does not divide ep {plan.ep}"
    if plan.tp % plan.expert_tp:
        yield "plan.experts.tp", f"{plan.expert_tp} does not divide tp {plan.tp}"
    elif plan.expert_tp < plan.tp and not plan.sequence_parallel:
        yield (
            "plan.experts.tp",
            f"{plan.expert_tp} below tp {plan.tp} needs sequence_parallel: tp ranks hold the same tokens without it",
        )


def check_expert_group(workload: Workload, num_gpus: int) -> Faults:
    """Expert groups divide the plane of data, context and the tensor parallelism that experts do not use."""
    plan = workload.plan
    if plan.tp % plan.expert_tp:
        return  # check_experts says so
    over = plan.tp // plan.expert_tp
    plane = plan.data_parallel(num_gpus) * plan.cp * over
    if plane % plan.ep:
        rest = f" x tp / experts.tp {over}" if over > 1 else ""
        yield "plan.ep", f"{plan.ep} does not divide dp x cp{rest} = {plane}"
