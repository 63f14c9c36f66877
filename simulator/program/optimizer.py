"""The end of a step: gradient norm, update, and the gather of updated parameters."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.program.chains import Chain, Transfer, chain_of
from simulator.program.pricing import ClassPricing
from simulator.program.rank_builder import RankBuilder
from simulator.program.setting import Setting
from simulator.program.units import layer_units
from simulator.workloads.layers import Layer, Operation
from simulator.workloads.operators import DTYPE_BYTES, MemoryBound

MOMENTS = {"adam": 2, "momentum": 1, "sgd": 0}
MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0}


def optimizer_step(
    setting: Setting, pricing: ClassPricing, rank: RankBuilder, stage: int, deps: Sequence[int]
) -> None:
    """Norm of the gradients, its sum over the ranks of a replica, the update, the gather of parameters."""
    counts = _owned(setting, stage)
    if not counts:
        return
    norm = rank.run(norm_chain(setting, pricing, counts), deps)
    after = [norm[1]] if norm is not None else list(deps)
    if setting.software.optimizer.norm_passes:
        # Every rank of the replica learns the norm before any may go on: a barrier of a few bytes.
        transfer = pricing.communicators.latency_only("model", "all_reduce", 4.0, pricing.rank_class)
        meeting = rank.communicate(transfer, "optimizer", "sum of norms", "dp", after)
        after = [meeting] if meeting is not None else after
    if setting.software.optimizer.host_synchronisations:
        rank.sync += after
    layers = [placed.layer for content in setting.content[stage] for placed in content.layers]
    update = rank.run(update_chain(setting, pricing, layers, counts), after)
    if update is None or setting.plan.zero not in (1, 2) or setting.gathers_ahead:
        return
    rank.taken.clear()  # all reductions are through
    for axis, count, op in handed_out(setting, stage):
        gather = pricing.communicators.transfer(axis, op, count * setting.parameter_size, pricing.rank_class)
        rank.communicate(gather, "dp", "gather parameters", "dp", [update[1]])


def parameter_gather(setting: Setting, pricing: ClassPricing, axis: str, count: float) -> Transfer | None:
    """What brings `count` sharded parameters to every rank of the axis; None where nothing moves."""
    return pricing.communicators.transfer(axis, "all_gather", count * setting.parameter_size, pricing.rank_class)


def handed_out(setting: Setting, stage: int) -> list[tuple[str, float, str]]:
    """(axis, parameters, operation) of every collective that spreads the updated parameters of a stage, in order.

    By broadcast, every rank hands out what it owns. Owners of layers are found as PyTorch's ZeroRedundancyOptimizer
    does: the largest to whoever has least.
    """
    parts = (("dp_cp", "dense"), ("edp", "experts"))
    chunks = setting.content[stage]
    if not setting.gathers_by_broadcast:
        return [(axis, getattr(chunk.whole, part), "all_gather") for chunk in chunks for axis, part in parts]
    found = []
    for axis, part in parts:
        layers = [unit for chunk in chunks for unit in layer_units(chunk.layers)]
        owned = [0.0] * setting.grid.size(axis)
        for count in sorted((getattr(layer, part) for layer in layers), reverse=True):
            owned[owned.index(min(owned))] += count
        found += [(axis, count, "broadcast_each") for count in owned]
    return found


def _owned(setting: Setting, stage: int) -> float:
    """Parameters that one rank of the stage updates."""
    dense = sum(content.whole.dense for content in setting.content[stage])
    experts = sum(content.whole.experts for content in setting.content[stage])
    if setting.plan.zero == 0:
        return float(dense + experts)
    return dense / setting.grid.size("dp_cp") + experts / setting.grid.size("edp")


def norm_chain(setting: Setting, pricing: ClassPricing, count: float) -> Chain:
    """Norm of the gradients of `count` parameters; empty where the software finds none."""
    cost = setting.software.optimizer
    read = count * cost.norm_passes * setting.reduction_size
    if not read:
        return Chain()
    kernel = MemoryBound("optimizer", read, 0.0)
    return chain_of([Operation("gradient norm", kernel)], pricing, "optimizer", True)


def update_chain(setting: Setting, pricing: ClassPricing, layers: Sequence[Layer], count: float) -> Chain:
    """Update of `count` parameters of `layers`. Bytes per parameter: gradient, moments and weights read; moments and weights written."""
    workload, cost = setting.workload, setting.software.optimizer
    moments = MOMENTS[setting.plan.optimizer] * MOMENT_BYTES[setting.plan.optimizer_dtype]
    rest = DTYPE_BYTES[workload.parameter_dtype]
    master = 4.0 if workload.master_weights else rest
    read = setting.reduction_size + moments + master
    written = moments + master + (rest if workload.master_weights else 0.0)
    tensors = sum(len(layer.modules) * 2 for layer in layers)
    kernels = max(1, round(cost.kernels_per_parameter_tensor * tensors))
    kernel = MemoryBound(
        "optimizer",
        count * (read + cost.extra_copies / 2),
        count * (written + cost.extra_copies / 2),
        kernels,
    )
    return chain_of([Operation("update", kernel)], pricing, "optimizer", True)
