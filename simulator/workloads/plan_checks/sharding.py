"""Is what ZeRO shares out, or offload moves away, there to be, over groups that divide?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.description.faults import listing, suggestion
from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


def check_zero(workload: Workload) -> Faults:
    """Options of ZeRO-3 go with it, and name layers that the model has."""
    plan = workload.plan
    kinds = dict.fromkeys(layer.kind for layer in workload.model.layers())
    for kind in plan.zero3.fractions:
        if kind not in kinds:
            hint = suggestion(kind, kinds)
            yield (
                "plan.zero3.fractions",
                f"unknown kind of layer {kind!r}{hint} (this model has: {listing(list(kinds))})",
            )
    if plan.zero == 3:
        return
    given = plan.zero3.model_dump(exclude={"prefetch", "reshard_after_forward"}, exclude_defaults=True)
    for key in given:
        yield f"plan.zero3.{key}", f"needs zero 3, but zero is {plan.zero}"


def check_shard_group(workload: Workload, num_gpus: int) -> Faults:
    """Groups that share one copy divide the data-parallel ranks, and hold whole copies of the experts."""
    plan = workload.plan
    groups, ranks = plan.zero3, plan.data_parallel(num_gpus) * plan.cp
    group = groups.shard_group
    if group is not None and ranks % group:
        yield "plan.zero3.shard_group", f"{group} does not divide dp x cp = {ranks}"
    elif group is not None and plan.ep > 1:
        wide, experts = group * plan.tp, plan.ep * plan.expert_tp
        if wide % experts and experts % wide:
            message = (
                f"{group} x tp {plan.tp} = {wide} and ep x experts.tp = {experts} do not divide one another"
            )
            yield "plan.zero3.shard_group", message
    shared, name = (ranks, "dp x cp") if group is None else (group, "shard_group")
    if groups.secondary_group is not None and shared % groups.secondary_group:
        yield "plan.zero3.secondary_group", f"{groups.secondary_group} does not divide {name} = {shared}"


def check_shard_parts(workload: Workload, num_gpus: int) -> Faults:
    """Unequal shards: one ratio per rank of dp x cp, and nothing that divides or leaves shards once more."""
    plan = workload.plan
    groups, ranks = plan.zero3, plan.data_parallel(num_gpus) * plan.cp
    if groups.parts == "even":
        return
    parts = groups.parts
    if not isinstance(parts, str) and (len(parts) != ranks or min(parts) < 0 or sum(parts) <= 0):
        yield (
            "plan.zero3.parts",
            f"{list(parts)}: needs {ranks} numbers (dp x cp), none below 0 and one above",
        )
    others = {
        "plan.zero3.shard_group": groups.shard_group is not None,
        "plan.zero3.secondary_group": groups.secondary_group is not None,
        "plan.zero3.fraction": groups.fraction != 1.0 or bool(groups.fractions),
        "plan.zero3.unsharded": groups.unsharded == "auto",
        "plan.offload": plan.offload.optimizer != "none" or plan.offload.parameters != "none",
        "plan.ep": plan.ep > 1,
    }
    for key, used in others.items():
        if used:
            yield key, "does not go with unequal shards (zero3.parts)"


def check_unsharded(workload: Workload) -> Faults:
    """Slices are cut from what is computed once, and one thing is chosen by the memory that is left."""
    plan, groups = workload.plan, workload.plan.zero3
    if groups.slices > 1 and plan.recompute != "none":
        yield (
            "plan.zero3.slices",
            "needs recompute: none; what backward computes again takes all slices of a layer",
        )
    if groups.slices > 1 and plan.offload.model_dump(exclude_defaults=True):
        yield "plan.zero3.slices", "does not go with plan.offload, which moves whole layers"
    if groups.fraction == "auto" and groups.unsharded == "auto":
        yield (
            "plan.zero3.unsharded",
            "auto: fraction is auto too; the memory that is left can be given to one of them",
        )
    if groups.memory_limit is not None and groups.undecided is None:
        yield (
            "plan.zero3.memory_limit",
            "limits what auto chooses, but neither fraction nor unsharded is auto",
        )


def check_offload(workload: Workload) -> Faults:
    """What leaves the GPU is there to leave it."""
    plan = workload.plan
    if plan.offload.parameters != "none" and plan.zero != 3:
        yield "plan.offload.parameters", f"needs zero 3, but zero is {plan.zero}"
    if plan.offload.optimizer != "none" and plan.overlap.dp_parameters and plan.zero in (1, 2):
        yield (
            "plan.offload.optimizer",
            "updates that come from the host cannot be gathered behind the next forward (overlap.dp_parameters)",
        )
