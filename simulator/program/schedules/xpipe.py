"""XPipe: 1F1B over micro-batches that never drains, on predicted weights (Guan et al. 2019, 1911.04610)."""

from __future__ import annotations

from simulator.program.schedules.one_f_one_b import one_f_one_b
from simulator.program.schedules.schedule import Action, register


@register("xpipe", period=lambda num_stages, chunks: 1, flushes=False, versions=lambda stage, num_stages: 2)
def xpipe(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """One update per mini-batch; the next one's micro-batches follow at once, with weights predicted for their update.

    Two copies of the weights: those in use and those predicted. The prediction itself (one pass over weights and
    moments per step) is taken to be part of the update.
    """
    return one_f_one_b(stage, num_stages, num_micro_batches, chunks)
