"""What in a plan has no effect, or another one than its author may think: one function per case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from simulator.workloads.fully_sharded import FullySharded
from simulator.workloads.plan import Experts, WideEnds
from simulator.workloads.synchronisation import Synchronisation

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload

Warnings = Iterator[tuple[str, str]]


def warn_attention(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Software without a flash kernel runs attention unfused."""
    if workload.plan.attention == "flash" and flash is None and workload.model.attention_heads is not None:
        software = workload.plan.software
        yield "plan.attention", f"{software} has no flash attention: simulated unfused, with scores in memory"


def warn_selective_flash(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Recomputing a flash core saves next to nothing."""
    plan = workload.plan
    fused = plan.attention == "flash" and flash is not None
    if plan.recompute == "selective" and fused and "core_attention" in plan.recompute_modules:
        yield (
            "plan.recompute_modules",
            "core_attention: flash keeps no scores, so this costs time and frees little",
        )


def warn_zero(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Nothing is shared out over a single data-parallel rank."""
    plan = workload.plan
    if plan.zero and plan.data_parallel(num_gpus) * plan.cp == 1:
        yield "plan.zero", f"zero {plan.zero} shares nothing out: dp x cp = 1"
    if plan.zero != 3 and plan.zero3 != FullySharded():
        yield "plan.zero3", f"has no effect with zero {plan.zero}"
    groups = plan.zero3
    if groups.unequal != "padded" and groups.parts == "even":
        yield "plan.zero3.unequal", "has no effect with equal shards"
    if groups.sum_copies_last and groups.shard_group is None:
        yield "plan.zero3.sum_copies_last", "has no effect without shard_group"
    if groups.secondary_group is not None and not groups.reshard_after_forward:
        yield "plan.zero3.secondary_group", "is never gathered from: parameters stay after forward"


def warn_offload(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Where what stays on the GPU would rest."""
    offload = workload.plan.offload
    if offload.choice != "each" and offload.activations in (0.0, 1.0):
        yield "plan.offload.choice", f"has no effect with activations {offload.activations:g}"
    if offload.optimizer == "none" and offload.optimizer_tier != "host":
        yield "plan.offload.optimizer_tier", "has no effect with optimizer: none"


def warn_scaling(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Wide GEMMs need no scales, and all blocks have them."""
    if workload.plan.scaling is not None and workload.precision not in ("fp8", "mxfp8", "nvfp4"):
        yield "plan.scaling", f"has no effect with precision {workload.precision}"
    if workload.plan.wide_ends != WideEnds() and workload.precision not in ("fp8", "mxfp8", "nvfp4"):
        yield "plan.wide_ends", f"has no effect with precision {workload.precision}"


def warn_experts(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Options of experts for a model that has none, or that a single GPU holds."""
    plan = workload.plan
    if plan.experts == Experts():
        return
    if workload.model.num_active_parameters == workload.model.num_parameters:
        yield "plan.experts", "has no effect: the model has no experts"
    elif plan.ep == 1 and (
        plan.experts.deduplicated or plan.experts.domain or plan.experts.dispatch_dtype is not None
    ):
        yield "plan.experts", "nothing is dispatched with ep 1"


def warn_synchronisation(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Replicas that agree need others to agree with."""
    plan = workload.plan
    if plan.synchronisation != Synchronisation() and plan.data_parallel(num_gpus) * plan.cp == 1:
        yield "plan.synchronisation", "has no effect with a single replica"


def warn_without_parallelism(workload: Workload, flash: str | None, num_gpus: int) -> Warnings:
    """Options of an axis of size one."""
    plan = workload.plan
    if plan.scatter_gather and (plan.pp == 1 or plan.tp == 1):
        yield "plan.scatter_gather", f"has no effect with tp {plan.tp} and pp {plan.pp}"
    elif plan.scatter_gather and plan.sequence_parallel:
        yield "plan.scatter_gather", "has no effect with sequence_parallel, whose tensors are cut already"
    if plan.cp == 1 and plan.context_exchange != "ring":
        yield "plan.context_exchange", "has no effect with cp 1"
    if plan.context_layout == "contiguous" and (plan.cp == 1 or plan.context_exchange == "all_to_all"):
        yield "plan.context_layout", "has no effect where every GPU's attention meets whole sequences"
    if plan.tp == 1 and plan.overlap.tp:
        yield "plan.overlap.tp", "has no effect with tp 1"
    if plan.overlap.tp == "pipelined" and plan.tp > 1 and not plan.sequence_parallel:
        yield "plan.overlap.tp", "pipelined cuts GEMMs only with sequence_parallel; backward still overlaps"


WARNINGS: tuple[Callable[[Workload, str | None, int], Warnings], ...] = (
    warn_attention,
    warn_selective_flash,
    warn_zero,
    warn_offload,
    warn_scaling,
    warn_experts,
    warn_synchronisation,
    warn_without_parallelism,
)
