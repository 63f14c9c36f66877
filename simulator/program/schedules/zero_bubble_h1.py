"""ZB-H1: weight gradients are put off into bubbles, in the memory of 1F1B (Qi et al. 2024, arXiv 2401.10241)."""

from __future__ import annotations

from simulator.program.schedules.schedule import Action, register


@register("zb-h1", period=lambda num_stages, chunks: 1)
def zero_bubble_h1(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """1F1B whose stage s runs the weight gradient of a micro-batch s micro-batches after its input gradient.

    With equal times of F, I and W and at least as many micro-batches as stages the bubble is (p-1) of one of them,
    where 1F1B has (p-1) of all three; no stage holds more than p micro-batches.
    """
    warmup = min(num_stages - stage - 1, num_micro_batches)
    actions = [Action("F", 0, i) for i in range(warmup)]
    for i in range(num_micro_batches - warmup):
        actions += [Action("F", 0, warmup + i), Action("I", 0, i)]
        if i >= stage:
            actions.append(Action("W", 0, i - stage))
    done = max(0, num_micro_batches - warmup - stage)
    for i in range(warmup):
        actions.append(Action("I", 0, num_micro_batches - warmup + i))
        if done <= num_micro_batches - warmup + i:
            actions.append(Action("W", 0, done))
            done += 1
    return actions + [Action("W", 0, i) for i in range(done, num_micro_batches)]
