"""What does the dealing of documents expect of a group of GPUs, and how many tokens do they have room for?

Either as a plan gives it (FlexSP's equations), or as the step is going to be simulated: kernels and exchanges of full
groups, priced at a few lengths, between which the time per token of a document changes linearly with its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.costs.memory import chunks_in_flight, gradient_copies, stage_state
from simulator.program.optimizer import parameter_gather
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.program.sharding import gathers, reductions
from simulator.program.track import chain_of
from simulator.program.units import Unit
from simulator.workloads.micro_batches import MicroBatch, Pack
from simulator.workloads.plan import DealingCosts

SHORTEST = 64
"""Tokens of the shortest document that is priced; longer ones follow in steps of STEP."""
STEP = 4


@dataclass(frozen=True)
class GivenCosts:
    """Implements `dealing.Costs` with constants of a plan."""

    given: DealingCosts

    def fixed(self, width: int) -> float:
        return self.given.fixed

    def document(self, length: int, width: int) -> float:
        given = self.given
        compute = (given.quadratic * length + given.linear) * length / width
        if width == 1:
            return compute
        return compute + given.exchanged * length / (width * given.bandwidth[width])


@dataclass(frozen=True)
class PricedCosts:
    """Implements `dealing.Costs` with prices: by width, the fixed seconds, and the seconds per token by length."""

    constant: dict[int, float]
    per_token: dict[int, tuple[tuple[int, ...], tuple[float, ...]]]

    def fixed(self, width: int) -> float:
        return self.constant[width]

    def document(self, length: int, width: int) -> float:
        lengths, seconds = self.per_token[width]
        return length * _interpolated(length, lengths, seconds)


def _interpolated(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """On the line through the two nearest points, also outside of them."""
    if len(xs) == 1:
        return ys[0]
    right = min(max(int(np.searchsorted(xs, x)), 1), len(xs) - 1)
    left = right - 1
    return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


def samples(widths: Sequence[int], room: int, longest: int, num_gpus: int) -> tuple[MicroBatch, ...]:
    """Micro-batches of equal documents that fill groups of one width, and half of them: what `priced` asks for."""
    found = []
    for width in widths:
        packs = [_full(width, room, length) for length in _lengths(width, room, longest)]
        found += [(pack,) * (num_gpus // width) for pack in (*packs, _half(packs[0]))]
    return tuple(found)


def _lengths(width: int, room: int, longest: int) -> tuple[int, ...]:
    most = max(1, min(longest, width * room))
    steps = []
    length = min(SHORTEST, most)
    while length < most:
        steps.append(length)
        length *= STEP
    return (*steps, most)


def _full(width: int, room: int, length: int) -> Pack:
    return Pack(width, ((length,) * max(1, width * room // length),))


def _half(pack: Pack) -> Pack:
    (row,) = pack.rows
    return Pack(pack.degree, (row[: max(1, len(row) // 2)],))


def priced(
    setting: Setting, pricings: Iterable[ClassPricing], widths: Sequence[int], room: int, longest: int
) -> PricedCosts:
    """Prices of the slowest GPU among `pricings`, of whichever pipeline stage."""
    constant: dict[int, float] = {}
    per_token = {}
    pricings = list(pricings)

    def seconds(pack: Pack) -> float:
        return max(_compute_seconds(setting, pricing, pack) for pricing in pricings)

    for width in widths:
        lengths = _lengths(width, room, longest)
        packs = [_full(width, room, length) for length in lengths]
        times = [seconds(pack) for pack in packs]
        full, half = packs[0].tokens, _half(packs[0]).tokens
        slope = (times[0] - seconds(_half(packs[0]))) / (full - half) if full > half else times[0] / full
        constant[width] = max(0.0, times[0] - slope * full)
        tokens = [(time - constant[width]) / pack.tokens for time, pack in zip(times, packs, strict=True)]
        per_token[width] = lengths, tuple(tokens)
    return PricedCosts(constant, per_token)


def _compute_seconds(setting: Setting, pricing: ClassPricing, pack: Pack) -> float:
    """Kernels, and the exchanges between them, of one micro-batch on the stage of the GPU."""
    stage = int(pricing.communicators.stages[pricing.rank_class])
    placed = [one for content in setting.content_of(pack)[stage] for one in content.layers]
    counts: dict[tuple[int, int], int] = {}
    for one in placed:
        counts[id(one.layer), id(one.shard)] = counts.get((id(one.layer), id(one.shard)), 0) + 1
    total = 0.0
    for one in {(id(one.layer), id(one.shard)): one for one in placed}.values():
        layer, shard = one.layer, one.shard
        parts = layer.forward(shard), (*layer.recompute(shard), *layer.backward(shard))
        alone = sum(chain_of(part, pricing, "compute", False).seconds for part in parts)
        total += alone * counts[id(layer), id(shard)]
    return total


def sharding_seconds(setting: Setting, pricing: ClassPricing) -> float:
    """What the collectives of sharded parameters take of every micro-batch, one after the other."""
    if not setting.shards_parameters:
        return 0.0
    gather = reduce = 0.0
    for content in setting.content[int(pricing.communicators.stages[pricing.rank_class])]:
        for unit in content.units:
            for direction in ("forward", "backward"):
                for axis, count in gathers(setting, unit, direction):
                    transfer = parameter_gather(setting, pricing, axis, count)
                    gather += transfer.seconds if transfer is not None else 0.0
            for chain in reductions(setting, unit, False):
                for axis, op, count in chain:
                    size = count * setting.reduction_size
                    transfer = pricing.communicators.transfer(axis, op, size, pricing.rank_class)
                    reduce += transfer.seconds if transfer is not None else 0.0
    return gather + reduce


def room_of(setting: Setting, capacity: float, widths: Sequence[int]) -> int:
    """Tokens of a micro-batch that fit each GPU beside the state, the fewest over widths and stages; 0 if none do."""
    return min(_room(setting, capacity, width, stage) for width in widths for stage in range(setting.plan.pp))


def _room(setting: Setting, capacity: float, width: int, stage: int) -> int:
    """By halving: more tokens never need less memory."""

    def fits(tokens: int) -> bool:
        return memory_of(setting, width, tokens, stage) <= capacity

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def memory_of(setting: Setting, width: int, tokens: int, stage: int = 0) -> float:
    """Peak bytes of a GPU with that many tokens of a micro-batch, as the program's ledger has it, or a little more.

    Backward frees layer by layer: while one runs, it and all before it hold their activations, and in a pipeline other
    micro-batches hold all of theirs, as many as can be in flight. Under ZeRO-3 its parameters are gathered, those that
    are prefetched are on their way, and its gradients are whole, as are those of the layer behind it, which are being
    summed.
    """
    (content,) = setting.content_of(Pack(width, ((tokens * width,),)))[stage]
    layers, software = [placed.layer for placed in content.layers], setting.software.memory
    world = setting.grid.world
    state = stage_state(layers, setting.workload, setting.shard, world, setting.longest_part).total
    state += gradient_copies(layers, setting.workload, setting.shard, world, software)
    units = content.units if setting.shards_parameters else (content.whole,)
    gathered = [_gathered_bytes(setting, unit) for unit in units]
    ahead, resharded = setting.plan.zero3.prefetch, setting.plan.zero3.reshard_after_forward
    pp, many = setting.plan.pp, 4 * setting.plan.pp + 1
    others = chunks_in_flight(setting.plan.schedule_name, stage, pp, many, 1) - 1
    held, most = others * content.whole.activation_bytes, 0.0
    for place, unit in enumerate(units):
        held += unit.activation_bytes
        coming = sum(gathered[max(0, place - ahead) : place]) * (
            setting.longest_part + software.gather_copies
        )
        there = gathered[place] + coming if resharded else sum(gathered)
        behind = gathered[place + 1] if place + 1 < len(units) else 0.0
        wide = 1.0 + setting.reduction_size / setting.gathered_size
        most = max(most, held + unit.transient_bytes + there + gathered[place] + wide * behind)
    return state + software.context + (1.0 + software.fragmentation) * most


def _gathered_bytes(setting: Setting, unit: Unit) -> float:
    if not setting.shards_parameters:
        return 0.0
    return sum(count for _, count in gathers(setting, unit, "backward")) * setting.gathered_size
