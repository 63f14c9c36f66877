"""Replicas that take steps of their own: when do they send each other parameters?

Averages in small groups stand in for the sums of gradients (see `sharding`): a bucket is updated and averaged when
its gradients are complete. Gossip sends the parameters that a step starts from, and needs those of the neighbours for
the update. Local steps end with an average of everything, after the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.program.pricing import ClassPricing
    from simulator.program.rank_builder import RankBuilder
    from simulator.program.setting import Setting


def send_to_neighbours(
    setting: Setting, pricing: ClassPricing, rank: RankBuilder, stage: int, deps: Sequence[int]
) -> list[int]:
    """Gossip: all parameters of a stage, to one neighbour after the other, while the step computes."""
    sent = []
    for axis in setting.gossip_axes:
        for content in setting.content[stage]:
            size = content.whole.parameters.total * setting.averaged_size
            transfer = pricing.communicators.transfer(axis, "shift", size, pricing.rank_class)
            task = rank.communicate(transfer, "dp", "send parameters", "dp", deps)
            sent += [] if task is None else [task]
    return sent


def average_parameters(
    setting: Setting, pricing: ClassPricing, rank: RankBuilder, stage: int, deps: Sequence[int]
) -> list[int]:
    """After the update; returns what the next forward waits for."""
    awaited = list(deps)
    for content in setting.content[stage]:
        size = content.whole.parameters.total * setting.averaged_size
        transfer = pricing.communicators.transfer("dp", "all_reduce", size, pricing.rank_class)
        task = rank.communicate(transfer, "dp", "average parameters", "dp", deps)
        awaited += [] if task is None else [task]
    return awaited
