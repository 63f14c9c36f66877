"""ZB-V: two chunks per stage placed in a V, so that no stage waits for a far one (Qi et al. 2024, 2401.10241)."""

from __future__ import annotations

from simulator.program.schedules.placement import vee
from simulator.program.schedules.schedule import Action, register


@register("zb-v", chunks=2, placement=vee, period=lambda num_stages, chunks: 1)
def zero_bubble_v(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """With equal times of F, I and W and m >= 2p, all that waits is the skew between stages: (p-1) half-stages.

    At most 2p half-stages of activations are kept, as in 1F1B. Without a barrier between steps (`overlap.steps`) the
    skew is paid once for all, and no bubble is left.

    Stage s fills the way down (2(p-s)-1 forwards of chunk 0), then alternates the two chunks until the first
    micro-batch is back (s times), then turns round (p-s forwards of chunk 1, each with its backward at once). In
    the steady state it runs F, I and W of either chunk in turn; at the end the input gradients go first and the
    weight gradients fill the waiting. Fewer micro-batches leave out the actions of those that are missing.
    """
    count = max(num_micro_batches, 2 * num_stages)
    order = _Order()
    for _ in range(2 * (num_stages - stage) - 1):
        order.add("F", 0)
    for _ in range(stage):
        order.add("F", 1)
        order.add("F", 0)
    for _ in range(num_stages - stage):
        order.add("F", 1)
        order.add("I", 1)
        order.add("W", 1)
    while order.done["F", 1] < count:
        if order.done["F", 0] < count:
            order.add("F", 0)
        for op, chunk in (("I", 0), ("W", 0), ("F", 1), ("I", 1), ("W", 1)):
            order.add(op, chunk)
    for _ in range(stage):
        order.add("I", 0)
        order.add("I", 1)
    for _ in range(num_stages - stage):
        order.add("I", 0)
        order.add("W", 0)
    for chunk in (1, 0):
        while order.done["W", chunk] < count:
            order.add("W", chunk)
    return [action for action in order.actions if action.micro_batch < num_micro_batches]


class _Order:
    """Actions so far; each kind takes the micro-batches in turn."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.done = {(op, chunk): 0 for op in "FIW" for chunk in (0, 1)}

    def add(self, op: str, chunk: int) -> None:
        self.actions.append(Action(op, chunk, self.done[op, chunk]))
        self.done[op, chunk] += 1
