"""Which layers of the model stand on which pipeline stage and in which of its chunks."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.program.partition import balanced
from simulator.program.schedules.placement import Placement, loop
from simulator.workloads.layers import Layer


def chunks(
    layers: Sequence[Layer],
    num_stages: int,
    chunks_per_stage: int,
    layers_per_stage: Sequence[int] | str | None,
    placement: Placement | None = None,
    speeds: Sequence[float] = (),
) -> list[list[tuple[Layer, ...]]]:
    """Layers by [stage][chunk]; without a `placement`, part k (of stages x chunks) sits on stage k % num_stages.

    Blocks are dealt evenly in order, earlier parts taking one more where they do not divide; `layers_per_stage` (one
    entry per stage, or per part; or "auto": as even in time as it can be) overrides the counts. What precedes the
    first block goes to the first part, what follows the last one to the last. `speeds`: of the stages, where they
    differ, which "auto" goes by.
    """
    placement = placement or loop(num_stages, chunks_per_stage)
    dealt = parts(layers, placement, layers_per_stage, speeds)
    return [[dealt[part] for part in stage] for stage in placement.parts]


def parts(
    layers: Sequence[Layer],
    placement: Placement,
    layers_per_stage: Sequence[int] | str | None,
    speeds: Sequence[float] = (),
) -> list[tuple[Layer, ...]]:
    """The parts of the model in order, as `chunks` says."""
    first = next((i for i, layer in enumerate(layers) if layer.kind == "block"), len(layers))
    last = len(layers) - next((i for i, layer in enumerate(reversed(layers)) if layer.kind == "block"), 0)
    blocks = list(layers[first:last])
    if layers_per_stage == "auto":
        of_part = {part: speed for held, speed in zip(placement.parts, speeds, strict=False) for part in held}
        by_part = [of_part[part] for part in range(placement.num_parts)] if of_part else ()
        counts = balanced(layers[:first], blocks, layers[last:], placement.num_parts, by_part)
    else:
        counts = _counts(len(blocks), placement, layers_per_stage)
    dealt = []
    start = 0
    for index, count in enumerate(counts):
        content = blocks[start : start + count]
        start += count
        if index == 0:
            content = [*layers[:first], *content]
        if index == len(counts) - 1:
            content = [*content, *layers[last:]]
        dealt.append(tuple(content))
    return dealt


def _counts(num_blocks: int, placement: Placement, layers_per_stage: Sequence[int] | str | None) -> list[int]:
    """Blocks of each part."""
    num_parts = placement.num_parts
    if layers_per_stage is None or isinstance(layers_per_stage, str):
        return _spread(num_blocks, num_parts)
    if len(layers_per_stage) == num_parts:
        return list(layers_per_stage)
    counts = [0] * num_parts
    for held, count in zip(placement.parts, layers_per_stage, strict=True):
        for part, share in zip(held, _spread(count, len(held)), strict=True):
            counts[part] = share
    return counts


def _spread(count: int, ways: int) -> list[int]:
    even, extra = divmod(count, ways)
    return [even + (i < extra) for i in range(ways)]
