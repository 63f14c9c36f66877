"""Interleaved 1F1B: each stage holds several model chunks and cycles through them (Narayanan et al. 2021)."""

from __future__ import annotations

from simulator.program.schedules.schedule import Action, register


@register("interleaved", chunks=None, period=lambda num_stages, chunks: num_stages)
def interleaved(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """Micro-batches advance in groups of p through chunk 0, 1, ..., v-1; bubble (p-1)/(v*m+p-1) of the step.

    Needs num_micro_batches % num_stages == 0 (checked with the plan). Megatron before Core 0.9 ran all forwards first
    where there were p micro-batches: as fast, with more of them in memory; that is not followed.
    """
    total = num_micro_batches * chunks
    warmup = min(2 * (num_stages - stage - 1) + (chunks - 1) * num_stages, total)

    def unit(index: int, backward: bool) -> Action:
        group, place = divmod(index, num_stages * chunks)
        chunk, lane = divmod(place, num_stages)
        micro_batch = group * num_stages + lane
        return Action("B", chunks - 1 - chunk, micro_batch) if backward else Action("F", chunk, micro_batch)

    actions = [unit(i, False) for i in range(warmup)]
    for i in range(total - warmup):
        actions += [unit(warmup + i, False), unit(i, True)]
    return actions + [unit(i, True) for i in range(total - warmup, total)]
