"""What stands in each chunk of each pipeline stage: layers, and the units of them that share a collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.program.units import Placed, Unit, buckets, layer_units, one_unit
from simulator.workloads.layers import Layer, Shard

if TYPE_CHECKING:
    from simulator.program.choices import Choices


@dataclass(frozen=True)
class ChunkContent:
    """One model chunk of a stage: its layers, and the units that share a collective (forward order)."""

    chunk: int
    virtual: int
    layers: tuple[Placed, ...]
    units: tuple[Unit, ...]
    whole: Unit


def contents(
    choices: Choices, chunks: Sequence[Sequence[Sequence[Layer]]], shard: Shard, kept: Shard
) -> list[list[ChunkContent]]:
    """Contents by [stage][chunk] of these layers by [stage][chunk].

    A GPU sees layers as `shard` says, and blocks of a stage beyond its first `recompute_layers` as `kept` does.
    """
    seen: dict[Shard, Shard] = {}
    return [_of_stage(choices, stage, held, shard, kept, seen) for stage, held in enumerate(chunks)]


def _of_stage(
    choices: Choices,
    stage: int,
    chunks: Sequence[Sequence[Layer]],
    shard: Shard,
    kept: Shard,
    seen: dict[Shard, Shard],
) -> list[ChunkContent]:
    limit, num_blocks, found = choices.plan.recompute_layers, 0, []
    for chunk, layers in enumerate(chunks):
        placed = []
        for layer in layers:
            beyond = limit is not None and layer.kind == "block" and num_blocks >= limit
            placed.append(Placed(layer, kept if beyond else shard))
            num_blocks += layer.kind == "block"
        if choices.offloads_activations and choices.plan.offload.choice == "longest":
            placed = _offloaded_first(placed, choices.plan.offload.activations, seen)
        (whole,) = one_unit(placed)
        part = choices.placement.parts[stage][chunk]
        found.append(ChunkContent(chunk, part, tuple(placed), tuple(units_of(choices, placed)), whole))
    return found


def _offloaded_first(layers: Sequence[Placed], part: float, seen: dict[Shard, Shard]) -> list[Placed]:
    """The layers with `part` of what they offload in all taken from the first of them, which wait longest.

    `seen` keeps one object for equal shards, by which chains are known.
    """
    found = []
    sizes = [one.layer.offloaded_bytes(replace(one.shard, offloaded=1.0)) for one in layers]
    left = part * sum(sizes)
    for one, size in zip(layers, sizes, strict=True):
        share = min(1.0, left / size) if size else 0.0
        left -= share * size
        shard = replace(one.shard, offloaded=share)
        found.append(Placed(one.layer, seen.setdefault(shard, shard)))
    return found


def units_of(choices: Choices, layers: Sequence[Placed]) -> list[Unit]:
    """Layers where each is gathered or moved, buckets where these are reduced or gathered, else all in one."""
    if choices.shards_parameters or choices.offloads_activations:
        return layer_units(layers, choices.num_slices)
    if choices.overlaps_gradients or choices.reduces_each_micro_batch or choices.gathers_ahead:
        size = choices.software.bucket_size if choices.plan.bucket_size is None else choices.plan.bucket_size
        return buckets(layers, size, choices.reduction_size)
    return one_unit(layers)


def bytes_between(choices: Choices, stages: Sequence[Sequence[ChunkContent]]) -> list[float]:
    """Bytes per GPU that cross from each part of the model to the next, per micro-batch."""
    parts = {content.virtual: content for stage in stages for content in stage}
    sizes: list[float] = []
    for part in range(choices.placement.num_parts - 1):
        content = parts[part]
        if content.layers:
            sizes.append(content.layers[-1].layer.output_bytes(content.layers[-1].shard))
        else:  # an empty chunk hands on what it received
            sizes.append(sizes[-1] if sizes else 0.0)
    return [size / choices.scatter for size in sizes]
