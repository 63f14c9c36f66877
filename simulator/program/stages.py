"""Which layers of the model stand on which pipeline stage and in which of its chunks."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workloads.layers import Layer


def chunks(
    layers: Sequence[Layer], num_stages: int, chunks_per_stage: int, layers_per_stage: Sequence[int] | None
) -> list[list[tuple[Layer, ...]]]:
    """Layers by [stage][chunk]. Virtual stage k (of stages x chunks) sits on stage k % num_stages.

    Blocks are dealt evenly in order, earlier virtual stages taking one more where they do not divide;
    `layers_per_stage` (one entry per stage, or per virtual stage) overrides the counts. What precedes the first
    block goes to the first virtual stage, what follows the last one to the last.
    """
    first = next((i for i, layer in enumerate(layers) if layer.kind == "block"), len(layers))
    last = len(layers) - next((i for i, layer in enumerate(reversed(layers)) if layer.kind == "block"), 0)
    blocks = list(layers[first:last])
    virtual = num_stages * chunks_per_stage
    counts = _counts(len(blocks), num_stages, chunks_per_stage, layers_per_stage)
    placed: list[list[tuple[Layer, ...]]] = [[() for _ in range(chunks_per_stage)] for _ in range(num_stages)]
    start = 0
    for index, count in enumerate(counts):
        content = blocks[start : start + count]
        start += count
        if index == 0:
            content = [*layers[:first], *content]
        if index == virtual - 1:
            content = [*content, *layers[last:]]
        placed[index % num_stages][index // num_stages] = tuple(content)
    return placed


def _counts(
    num_blocks: int, num_stages: int, chunks_per_stage: int, layers_per_stage: Sequence[int] | None
) -> list[int]:
    virtual = num_stages * chunks_per_stage
    if layers_per_stage is None:
        even, extra = divmod(num_blocks, virtual)
        return [even + (i < extra) for i in range(virtual)]
    if len(layers_per_stage) == virtual:
        return list(layers_per_stage)
    spread = []
    for count in layers_per_stage:
        even, extra = divmod(count, chunks_per_stage)
        spread.append([even + (i < extra) for i in range(chunks_per_stage)])
    return [spread[i % num_stages][i // num_stages] for i in range(virtual)]
