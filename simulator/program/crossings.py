"""Which messages carry a tensor from one pipeline stage to another, between which ranks and how large?

Stages of equal degrees send rank by rank, all stages at once (axes pair+1 and pair-1). Between stages of unequal ones
every rank sends what it has and another needs (`ranks.unequal`). The sizes add up to the tensor, each byte once, where
tensor-parallel ranks hold different tokens or a tensor is cut for the way; else each receiver gets a copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.workloads.modules.vocabulary import shareable

if TYPE_CHECKING:
    from simulator.program.setting import Setting
    from simulator.ranks.unequal import Crossing
    from simulator.workloads.micro_batches import Pack

Crossings = list[tuple[str, float]]
"""(axis of pairs, bytes that each of them sends)"""


def boundary(setting: Setting, source: int, target: int, part: int, pack: Pack | None = None) -> Crossings:
    """What stage `source` sends to `target` of the tensor between a part of the model and the next, or its gradient."""
    size, view = setting.boundary_bytes_of(pack)[part], setting.view
    if view is None:
        return [(setting.pair_axis(source, target), size)]
    held = (
        setting.scatter if setting.scatter > 1 else setting.plan.tp if setting.plan.sequence_parallel else 1
    )
    whole = size * held * setting.grid.dp
    cut = view.job.plan.sequence_parallel or setting.cuts_boundaries
    return _sized(view.layout.crossings(source, target, "cut" if cut else "copied"), whole)


def tied(setting: Setting, source: int, target: int) -> Crossings:
    """What one end of the pipeline sends to the other of the shared embedding's gradient, where their degrees differ.

    Vocabularies are padded by degree: the rows that both have.
    """
    if setting.view is None or not setting.tied_bytes:
        return []
    table, layout = setting.content[0][0].layers[0].layer, setting.view.layout
    degrees = {layout.stages[end].tp for end in (source, target)}
    elements = min(tp * shareable(table, replace(setting.shard, tp=tp)) for tp in degrees)
    return _sized(layout.crossings(source, target, "rows"), elements * setting.reduction_size)


def _sized(crossings: tuple[Crossing, ...], whole: float) -> Crossings:
    return [(one.axis, whole * one.share.numerator / one.share.denominator) for one in crossings]
