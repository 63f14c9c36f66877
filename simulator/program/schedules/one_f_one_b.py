"""1F1B: after a warm-up each stage alternates one forward and one backward (Narayanan et al. 2021, 2104.04473)."""

from __future__ import annotations

from simulator.program.schedules.schedule import Action, register


@register("1f1b", period=lambda num_stages, chunks: 1)
def one_f_one_b(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """Warm-up of p-stage-1 forwards, steady pairs, cool-down; at most p-stage micro-batches in flight."""
    warmup = min(num_stages - stage - 1, num_micro_batches)
    steady = num_micro_batches - warmup
    actions = [Action("F", 0, i) for i in range(warmup)]
    for i in range(steady):
        actions += [Action("F", 0, warmup + i), Action("B", 0, i)]
    return actions + [Action("B", 0, steady + i) for i in range(warmup)]
