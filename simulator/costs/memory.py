"""How many bytes a training step needs on one GPU: state by closed form, activations by what is in flight.

The program tracks the same bytes over time; this is the closed form for bounds, tests and `does it fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from simulator.costs.software import MemoryOverheads
from simulator.program.schedules import find_schedule
from simulator.workloads.layers import Layer, Parameters, Shard
from simulator.workloads.operators import DTYPE_BYTES
from simulator.workloads.plan import Offload
from simulator.workloads.workload import Workload

MOMENTS = {"adam": 2, "momentum": 1, "sgd": 0}
MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0}
NO_OVERHEADS = MemoryOverheads(context=0.0, fragmentation=0.0)


@dataclass(frozen=True, slots=True)
class StateRule:
    """Bytes per parameter of each kind of state, before sharding, and the ZeRO stage that shards it.

    Mixed-precision Adam: 2 + 4 + 4 + 8 = 18 with fp32 gradients, 16 with 16-bit ones (Rajbhandari et al.
    2020).
    """

    parameters: float
    gradients: float
    master: float
    moments: float
    zero: int

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.master + self.moments


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes on one GPU that last from step to step."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer

    def __add__(self, other: StateBytes) -> StateBytes:
        return StateBytes(
            self.parameters + other.parameters,
            self.gradients + other.gradients,
            self.optimizer + other.optimizer,
        )


def state_rule(workload: Workload) -> StateRule:
    """Bytes per parameter by precision and optimizer.

    Gradients are kept as they are summed. Under ZeRO-3 a shard's rests beside its parameter and takes that one's type,
    if it is the wider (PyTorch's `.grad`), whatever was sent.
    """
    plan = workload.plan
    parameters, gradients = DTYPE_BYTES[workload.parameter_dtype], DTYPE_BYTES[workload.gradient_dtype]
    return StateRule(
        parameters=parameters,
        gradients=max(parameters, gradients) if plan.zero == 3 else gradients,
        master=4.0 if workload.master_weights else 0.0,
        moments=MOMENTS[plan.optimizer] * MOMENT_BYTES[plan.optimizer_dtype],
        zero=plan.zero,
    )


def state_bytes(
    num_parameters: float, rule: StateRule, num_sharers: int, fraction: float = 1.0
) -> StateBytes:
    """State of `num_parameters` (of one GPU's layers) shared out over `num_sharers` data-parallel ranks.

    ZeRO 1 divides master weights and moments, 2 also gradients, 3 also parameters. `fraction` of the parameters is
    shared out, the rest is whole on every rank.
    """
    part = kept_part(fraction, num_sharers)
    divided = [num_parameters * (part if rule.zero >= stage else 1.0) for stage in (3, 2, 1)]
    return StateBytes(
        divided[0] * rule.parameters, divided[1] * rule.gradients, divided[2] * (rule.master + rule.moments)
    )


def kept_part(fraction: float, num_sharers: int) -> float:
    """Of parameters of which `fraction` is shared out over so many ranks, the part that stands on each."""
    return 1.0 - fraction + fraction / num_sharers


def stage_state(
    layers: Sequence[Layer], workload: Workload, shard: Shard, num_gpus: int, part: float = 1.0
) -> StateBytes:
    """State of one GPU's layers; experts are shared out over the ranks that hold the same ones.

    `part`: its shard over the mean, where ZeRO-3's shards are unequal.
    """
    plan, rule = workload.plan, state_rule(workload)
    sharers, expert_sharers = num_sharers(workload, num_gpus)
    total = StateBytes(0.0, 0.0, 0.0)
    whole = narrow = Parameters()
    for layer in layers:
        count = layer.parameters(shard)
        fraction = plan.zero3.fraction_of(layer.kind) if plan.zero == 3 else 1.0
        total += state_bytes(count.total - count.experts, rule, sharers, fraction)
        total += state_bytes(count.experts, rule, expert_sharers, fraction)
        whole += count
        narrow += Parameters() if layer.wide else count
    total = StateBytes(total.parameters * part, total.gradients * part, total.optimizer * part)
    beside = _wide_parts(whole, narrow, workload, shard) + _copies(whole, narrow, workload, shard, rule)
    copies = StateBytes(beside, _unsent(whole, workload, rule), 0.0)
    if plan.synchronisation.dense == "servers":  # which keep the optimizer's state
        total = StateBytes(total.parameters, total.gradients, 0.0)
    return _resident(total, workload) + copies + _tables(layers, workload, shard, num_gpus)


def _tables(layers: Sequence[Layer], workload: Workload, shard: Shard, num_gpus: int) -> StateBytes:
    """Tables with sparse gradients: whole with their state; of those on servers, the rows that a step meets."""
    count = sum(layer.parameters(shard).tables for layer in layers)
    if not count or shard.table_memory != "hbm":
        return StateBytes(0.0, 0.0, 0.0)
    rule = state_rule(workload)
    touched = sum(layer.touched_bytes(shard, workload.num_micro_batches(num_gpus)) for layer in layers)
    if shard.sparse == "servers":
        return StateBytes(touched, touched, 0.0)
    return StateBytes(count * rule.parameters, touched, count * (rule.master + rule.moments))


def _unsent(count: Parameters, workload: Workload, rule: StateRule) -> float:
    """What compression left out of the last gradients, and what neighbours' parameters arrive in."""
    synchronisation = workload.plan.synchronisation
    kept = rule.gradients if synchronisation.compression.error_feedback else 0.0
    if synchronisation.scheme == "gossip":
        kept += synchronisation.neighbours * (rule.master or rule.parameters)
    return kept * count.total


def _resident(state: StateBytes, workload: Workload) -> StateBytes:
    """The part of the state that is on the GPU all the time."""
    offload = workload.plan.offload
    evicts = offload.optimizer == "cpu" and workload.plan.zero >= 2  # gradients leave as they are reduced
    return StateBytes(
        parameters=state.parameters if offload.parameters == "none" else 0.0,
        gradients=0.0 if evicts else state.gradients,
        optimizer=state.optimizer if offload.optimizer == "none" else 0.0,
    )


def host_state(layers: Sequence[Layer], workload: Workload, shard: Shard, num_gpus: int) -> float:
    """Bytes of one GPU's state that rest in its host's memory (not on disks)."""
    offload = workload.plan.offload
    if shard.table_memory != "hbm":
        rule, count = state_rule(workload), sum(layer.parameters(shard).tables for layer in layers)
        return count * (rule.parameters + rule.master + rule.moments)
    if offload.optimizer == "none" and offload.parameters != "host":
        return 0.0
    kept = workload.model_copy(update={"plan": workload.plan.model_copy(update={"offload": Offload()})})
    whole = stage_state(layers, kept, shard, num_gpus)
    total = 0.0
    if offload.optimizer != "none" and offload.optimizer_tier == "host":
        total += whole.optimizer
    if offload.optimizer == "cpu" and workload.plan.zero >= 2:
        total += whole.gradients
    return total + (whole.parameters if offload.parameters == "host" else 0.0)


def num_sharers(workload: Workload, num_gpus: int) -> tuple[int, int]:
    """Ranks that share out dense parameters, and ranks that share out the same experts."""
    plan = workload.plan
    plane = plan.data_parallel(num_gpus) * plan.cp
    group = plan.zero3.shard_group or plane
    return group, max(1, group * plan.tp // (plan.ep * plan.expert_tp))


def _wide_parts(whole: Parameters, narrow: Parameters, workload: Workload, shard: Shard) -> float:
    """Where matrices rest narrow, what embeddings, norms, biases and wide blocks need beyond as many bytes."""
    if workload.parameter_dtype != "fp8":
        return 0.0
    return (shard.bytes - DTYPE_BYTES["fp8"]) * (whole.total - narrow.matrices - narrow.experts)


def _copies(
    whole: Parameters, narrow: Parameters, workload: Workload, shard: Shard, rule: StateRule
) -> float:
    """Copies of parameters: fp8 ones beside wide ones, row-wise and column-wise; under ZeRO-3 a secondary shard."""
    if rule.zero == 3:
        group = workload.plan.zero3.secondary_group
        return (whole.total - whole.experts) * shard.bytes / group if group is not None else 0.0
    if not shard.low_precision:
        return 0.0
    ways = 2.0 if workload.plan.transposed_weights else 1.0
    ways -= workload.parameter_dtype == "fp8"  # one of them is the parameter itself
    return ways * DTYPE_BYTES[shard.gemm_dtype] * (narrow.matrices + narrow.experts)


def gathered_bytes(layers: Sequence[Layer], workload: Workload, shard: Shard) -> float:
    """ZeRO-3: largest run of gathered layers, prefetched ones included, and gradients in flight.

    Gathered in the compute type; a layer's gradients appear unsharded, and again in the reduction type. Of layers that
    stay gathered over the step, what a budget leaves at least.
    """
    plan, groups, slices = workload.plan, workload.plan.zero3, workload.plan.zero3.slices
    if plan.zero != 3:
        return 0.0
    sizes = [
        groups.fraction_of(layer.kind) * (layer.parameters(shard).total // slices)
        for layer in layers
        for _ in range(slices)
    ]
    gradients = max(sizes) * (shard.bytes + DTYPE_BYTES[workload.gradient_dtype])
    if not groups.reshard_after_forward:
        return sum(sizes) * shard.bytes + gradients
    ahead, kept = groups.prefetch + 1, 0.0
    if plan.pp == 1:
        room = groups.unsharded_bytes / shard.bytes
        kept = sum(sizes) if sum(sizes) <= room else room - max(sizes)
    runs = [sum(sizes[start : start + ahead]) for start in range(len(sizes))]
    return max(kept, *runs) * shard.bytes + gradients


def update_bytes(layers: Sequence[Layer], workload: Workload, shard: Shard, num_gpus: int) -> float:
    """fp32 copies of 16-bit gradients that the update makes (sharded with the optimizer state).

    An optimizer whose moments are narrow (precision-aware) takes gradients as they are.
    """
    narrow = DTYPE_BYTES[workload.gradient_dtype] < 4
    at_home = workload.plan.offload.optimizer == "none"
    if not (workload.master_weights and narrow and at_home and workload.plan.optimizer_dtype == "fp32"):
        return 0.0
    count = sum((layer.parameters(shard) for layer in layers), Parameters())
    sharers, expert_sharers = num_sharers(workload, num_gpus) if workload.plan.zero else (1, 1)
    return 4.0 * ((count.total - count.experts) / sharers + count.experts / expert_sharers)


def gradient_copies(
    layers: Sequence[Layer],
    workload: Workload,
    shard: Shard,
    num_gpus: int,
    overheads: MemoryOverheads,
) -> float:
    """Bytes of gradients besides the sums of them that the software holds all the time."""
    copies = 0.0
    if overheads.flat_update:
        copies += update_bytes(layers, workload, shard, num_gpus)
    narrow, wide = DTYPE_BYTES[workload.activation_dtype], DTYPE_BYTES[workload.gradient_dtype]
    if overheads.narrow_gradients and narrow < wide and workload.plan.zero < 2:
        copies += narrow * sum(layer.parameters(shard).total for layer in layers)
    return copies


def chunks_in_flight(schedule: str, stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> int:
    """Most forward chunks of a stage whose backward has not run (Narayanan et al. 2021).

    GPipe: all m; 1F1B: p - stage; interleaved: (v - 1) p + 2 (p - stage - 1) + 1 chunks. Others are counted out;
    where the weight gradient runs apart, a chunk flies until then.
    """
    total = num_micro_batches * chunks
    if schedule == "gpipe":
        return total
    if schedule == "interleaved" and num_stages > 1:
        return min(total, (chunks - 1) * num_stages + 2 * (num_stages - stage - 1) + 1)
    if schedule == "1f1b":
        return min(total, num_stages - stage)
    few = min(num_micro_batches, 4 * num_stages + 1)
    return round(_fullest(schedule, stage, num_stages, few, (1.0,) * chunks))


@lru_cache(maxsize=4096)
def _fullest(
    schedule: str, stage: int, num_stages: int, num_micro_batches: int, per_chunk: tuple[float, ...]
) -> float:
    """Most that a stage holds, of which every chunk in flight holds `per_chunk`, counted out."""
    known = find_schedule(schedule)
    if known is None:
        raise KeyError(schedule)
    actions = known(stage, num_stages, known.num_micro_batches or num_micro_batches, len(per_chunk))
    change = {"F": 1.0, "B": -1.0, "W": -1.0, "I": 0.0}
    return max(accumulate(change[action.op] * per_chunk[action.chunk] for action in actions), default=0.0)


def recomputed_blocks(blocks_per_chunk: Sequence[int], recompute_layers: int | None) -> list[int]:
    """How many of each chunk's first blocks recompute: all, or the first `recompute_layers` of the stage."""
    if recompute_layers is None:
        return list(blocks_per_chunk)
    counts, left = [], recompute_layers
    for blocks in blocks_per_chunk:
        counts.append(min(blocks, left))
        left -= counts[-1]
    return counts


def chunk_activation_bytes(layers: Sequence[Layer], shard: Shard, num_recomputed: int | None = None) -> float:
    """Bytes kept from forward to backward by one micro-batch in one chunk; the first blocks recompute."""
    plain, left, total = replace(shard, recompute="none"), num_recomputed, 0.0
    for layer in layers:
        beyond = layer.kind == "block" and left is not None and left <= 0
        total += layer.activation_bytes(plain if beyond else shard)
        if layer.kind == "block" and left is not None:
            left -= 1
    return total


def largest_working(layers: Sequence[tuple[float, float]]) -> float:
    """Most bytes beside all that a chunk keeps, of its layers' (kept, working) bytes in forward order.

    Backward begins at the last layer, and a layer that is through has freed what it kept.
    """
    most = freed = 0.0
    for kept, working in reversed(layers):
        most = max(most, working - freed)
        freed += kept
    return most


def stage_memory(
    chunks: Sequence[Sequence[Layer]],
    stage: int,
    workload: Workload,
    shard: Shard,
    num_gpus: int,
    overheads: MemoryOverheads = NO_OVERHEADS,
) -> dict[str, float]:
    """Peak bytes by kind on one GPU of `stage`, which holds `chunks` (see `simulator.program.stages`).

    parameters, gradients, optimizer: the state. activations: all chunks in flight. transient: the larger of a
    layer's working memory beside full activations and the update's copies without them. buffers: ZeRO-3
    gathers. `overheads` are the software's.
    """
    plan = workload.plan
    layers = [layer for chunk in chunks for layer in chunk]
    state = stage_state(layers, workload, shard, num_gpus)
    count = workload.num_micro_batches(num_gpus)
    counts = recomputed_blocks(
        [sum(layer.kind == "block" for layer in chunk) for chunk in chunks], plan.recompute_layers
    )
    per_chunk = [
        chunk_activation_bytes(chunk, shard, count) for chunk, count in zip(chunks, counts, strict=True)
    ]
    if len(chunks) == 1:
        activations = chunks_in_flight(plan.schedule_name, stage, plan.pp, count, 1) * per_chunk[0]
    else:  # the chunk with the loss is in flight once, others more often
        few = min(count, 4 * plan.pp)
        activations = _fullest(plan.schedule_name, stage, plan.pp, few, tuple(per_chunk))
    if plan.offload.choice == "each":
        waiting = max((layer.offloaded_bytes(shard) for layer in layers), default=0.0)
        activations += (plan.offload.prefetch + 2) * waiting  # on their way out, coming in, in use
    working = max(
        (largest_working([(layer.activation_bytes(shard), layer.transient_bytes(shard)) for layer in chunk]))
        for chunk in chunks
    )
    update = 0.0 if overheads.flat_update else update_bytes(layers, workload, shard, num_gpus)
    update = max(0.0, update - activations)
    buffers = gathered_bytes(layers, workload, shard)
    transient = max(working, update)
    return {
        "parameters": state.parameters,
        "gradients": state.gradients,
        "gradient copies": gradient_copies(layers, workload, shard, num_gpus, overheads),
        "optimizer": state.optimizer,
        "activations": activations,
        "transient": transient,
        "buffers": buffers,
        "fragmentation": overheads.fragmentation * (activations + transient + buffers),
        "context": overheads.context,
    }
