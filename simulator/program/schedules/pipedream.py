"""PipeDream: 1F1B that never drains, on the weights that each micro-batch began with (1806.03377, 2006.09503)."""

from __future__ import annotations

from simulator.program.schedules.one_f_one_b import one_f_one_b
from simulator.program.schedules.schedule import Action, register


def _versions(stage: int, num_stages: int) -> int:
    """One for every micro-batch that is under way between this stage and the last (weight stashing)."""
    return num_stages - stage


@register(
    "pipedream",
    period=lambda num_stages, chunks: 1,
    flushes=False,
    updates_each_micro_batch=True,
    versions=_versions,
)
def pipedream(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """1F1B over all micro-batches of all steps; no bubble, p - stage versions of the weights."""
    return one_f_one_b(stage, num_stages, num_micro_batches, chunks)


@register(
    "pipedream-2bw", period=lambda num_stages, chunks: 1, flushes=False, versions=lambda stage, num_stages: 2
)
def pipedream_2bw(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """As PipeDream, but gradients accumulate over the micro-batches of a step: two versions do (Narayanan 2021)."""
    return one_f_one_b(stage, num_stages, num_micro_batches, chunks)
