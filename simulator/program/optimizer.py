"""The end of a step: gradient norm, update, and the gather of updated parameters."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.costs.memory import MOMENT_BYTES, MOMENTS, update_bytes
from simulator.program.chains import Chain, Transfer
from simulator.program.handing_out import hand_out
from simulator.program.offload import HostTraffic
from simulator.program.pricing import ClassPricing
from simulator.program.rank_builder import RankBuilder
from simulator.program.setting import Setting
from simulator.program.sharding import gather_of, gathers, owned_parameters, shares
from simulator.program.track import chain_of
from simulator.workloads.layers import Layer, Operation
from simulator.workloads.modules.gemms import cast
from simulator.workloads.operators import DTYPE_BYTES, MemoryBound


def optimizer_step(
    setting: Setting,
    pricing: ClassPricing,
    rank: RankBuilder,
    host: HostTraffic,
    stage: int,
    deps: Sequence[int],
) -> list[int]:
    """Norm of the gradients, its sum over the ranks of a replica, the update, the gather of parameters.

    Returns the tasks that the next forward waits for.
    """
    placed = [one for content in setting.content[stage] for one in content.layers]
    counts = owned_parameters(setting, placed) * setting.part_of(pricing.rank_class)
    if not counts:
        return list(deps)
    norm = rank.run(norm_chain(setting, pricing, counts), deps)
    after = [norm[1]] if norm is not None else list(deps)
    if setting.software.optimizer.norm_passes and not setting.overlaps_steps:
        # Every rank of the replica learns the norm before any may go on: a barrier of a few bytes.
        transfer = pricing.communicators.latency_only("model", "all_reduce", 4.0, pricing.rank_class)
        meeting = rank.communicate(transfer, "optimizer", "sum of norms", "dp", after)
        after = [meeting] if meeting is not None else after
    if setting.software.optimizer.host_synchronisations and not setting.overlaps_steps:
        rank.wait_for([*rank.sync, *after])
    if setting.plan.offload.optimizer == "none":
        update = rank.run(update_chain(setting, pricing, [one.layer for one in placed], counts), after)
        updated = [] if update is None else [update[1]]
        if update is not None and not setting.software.memory.flat_update:
            _copy_gradients(setting, pricing, [one.layer for one in placed], update)
    else:
        last = setting.content_of(setting.packs_of(pricing.rank_class)[-1])[stage]
        units = [unit for content in last for unit in setting.reduced_units(content)]
        updated = host.update(
            units, after, lambda part, count: update_chain(setting, pricing, [p.layer for p in part], count)
        )
    updated += _scales(setting, pricing, rank, updated)
    if not updated or setting.plan.zero not in (1, 2) or setting.gathers_ahead:
        return updated
    rank.taken.clear()  # all reductions are through
    if setting.hands_out_messages:
        return updated + hand_out(setting, pricing, rank, shares(setting, stage), updated)
    gathers_of = [
        gather for chunk in setting.content[stage] for gather in gathers(setting, chunk.whole, "forward")
    ]
    op = "broadcast_each" if setting.gathers_by_broadcast else "all_gather"
    awaited = list(updated)
    for axis, count in gathers_of:
        gather = pricing.communicators.transfer(axis, op, count * setting.parameter_size, pricing.rank_class)
        task = rank.communicate(gather, "dp", "gather parameters", "dp", updated)
        awaited += [] if task is None else [task]
    return awaited


def _copy_gradients(
    setting: Setting, pricing: ClassPricing, layers: Sequence[Layer], update: tuple[int, int]
) -> None:
    """fp32 copies of narrow gradients live while the update runs."""
    size = update_bytes(layers, setting.workload, setting.shard, setting.grid.world)
    setting.draft.memory(update[0], pricing.rank_class, "transient", size)
    setting.draft.memory(update[1], pricing.rank_class, "transient", -size, at_end=True)


def _scales(setting: Setting, pricing: ClassPricing, rank: RankBuilder, deps: Sequence[int]) -> list[int]:
    """With delayed scaling, once a step all ranks that see other tokens of a tensor agree on its largest values."""
    if not setting.shard.low_precision or setting.shard.scaling != "delayed":
        return []
    found: list[int] = []
    for axis in ("tp", "dp_cp"):
        transfer = pricing.communicators.latency_only(axis, "all_reduce", LARGEST_VALUES, pricing.rank_class)
        task = rank.communicate(transfer, "optimizer", "agree on scales", "dp", [*deps, *found])
        found += [] if task is None else [task]
    return found[-1:]


LARGEST_VALUES = 4096.0
"""Bytes of the largest values of all tensors of a stage, about: few enough that only latency counts."""


def parameter_gather(setting: Setting, pricing: ClassPricing, axis: str, count: float) -> Transfer | None:
    """What brings `count` sharded parameters to every rank of the axis; None where nothing moves."""
    op, count = gather_of(setting, count)
    return pricing.communicators.transfer(axis, op, count * setting.parameter_size, pricing.rank_class)


def norm_chain(setting: Setting, pricing: ClassPricing, count: float) -> Chain:
    """Norm of the gradients of `count` parameters; empty where the software finds none."""
    cost = setting.software.optimizer
    read = count * cost.norm_passes * setting.reduction_size
    if not read:
        return Chain()
    kernel = MemoryBound("optimizer", read, 0.0)
    return chain_of([Operation("gradient norm", kernel)], pricing, "optimizer", True)


def update_chain(setting: Setting, pricing: ClassPricing, layers: Sequence[Layer], count: float) -> Chain:
    """Update of `count` parameters of `layers`: gradient, moments and weights read; moments and weights written."""
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
    operations = [Operation("update", kernel), *_narrowed(setting, layers, count)]
    return chain_of(operations, pricing, "optimizer", True)


def _narrowed(setting: Setting, layers: Sequence[Layer], count: float) -> list[Operation]:
    """Once a step, weights are made narrow for the GEMMs to come; sharded ones (count) before they are gathered."""
    shard = setting.shard
    if not shard.low_precision or shard.casts_weights:
        return []
    if not setting.shards_parameters:
        held = [layer.parameters(shard) for layer in layers if not layer.wide]
        count = float(sum(one.matrices + one.experts for one in held))
    return cast("update", "weights", count, shard.gemm_dtype, shard)
