"""DualPipe and DualPipeV: forwards beside backwards of other micro-batches (DeepSeek-AI 2024, DeepSeek-V3 3.2.1).

DualPipe sends micro-batches in at both ends of a pipeline of two copies of the model. DualPipeV is half of it ("cut in
half", Qi et al. 2025): one copy, whose parts go down the stages and back up. A stage of DualPipeV does what DualPipe's
does that is as far from its end, in a pipeline of twice as many stages.

Order as in the authors' release (deepseek-ai/DualPipe). Fewer micro-batches leave out the actions of those that are
missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from simulator.program.schedules.placement import both_ways, vee
from simulator.program.schedules.schedule import Action, register


@register(
    "dualpipe",
    chunks=2,
    placement=both_ways,
    even=True,
    copies=2,
    pairs=True,
    period=lambda num_stages, chunks: 2,
)
def dualpipe(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """Half of the micro-batches go down the stages (chunk 0) and half up (chunk 1), each through a model of its own.

    With F&B for a forward and a backward side by side, (p/2 - 1)(F&B + B - 3W) is waited for, given m >= 2p; p + 1
    micro-batches of a stage are kept. In the steady state a stage runs a forward of one direction beside a backward of
    the other (`overlap.ep` hides the exchanges of each behind the computation of the other).
    """
    count = max(num_micro_batches, 2 * num_stages) // 2
    half, near = num_stages // 2, min(stage, num_stages - 1 - stage)
    down = 0 if stage < half else 1  # the chunk of the direction that enters at this half of the pipeline

    def place(phase: int, number: int) -> tuple[int, int]:
        chunk = phase ^ down
        return chunk, 2 * number + chunk

    order = _order(near, half, count, place)
    return [action for action in order if action.micro_batch < num_micro_batches]


@register("dualpipe-v", chunks=2, placement=vee, pairs=True, period=lambda num_stages, chunks: 1)
def dualpipe_v(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """Every micro-batch goes down the stages (chunk 0) and back up (chunk 1), beside the backward of another.

    In times of a chunk, a half-stage, (p - 1)(F&B + B - 3W) is waited for, given m >= 2p; 2p + 1 chunks are kept.
    """
    count = max(num_micro_batches, 2 * num_stages)
    order = _order(stage, num_stages, count, lambda phase, number: (phase, number))
    return [action for action in order if action.micro_batch < num_micro_batches]


Place = Callable[[int, int], tuple[int, int]]
"""(phase, which of its micro-batches) -> (chunk, micro-batch); phase 0 is the direction that enters first."""


def _order(near: int, half: int, count: int, place: Place) -> list[Action]:
    """A stage that is `near` its end of `half` stages, with `count` micro-batches of either phase."""
    order = _Order(place)
    for _ in range(2 * (half - near - 1)):
        order.add("F", 0)
    for _ in range(near + 1):
        order.add("F", 0)
        order.add("F", 1)
    for _ in range(half - near - 1):
        order.add("I", 1)
        order.weight()
        order.add("F", 1)
    for _ in range(count - 2 * half + near + 1):
        order.add("F", 0)
        order.add("B", 1)
        order.add("F", 1)
        order.add("B", 0)
    for _ in range(half - near - 1):
        order.add("B", 1)
        order.add("F", 1)
        order.add("B", 0)
    late = False
    for i in range(near + 1):
        turns = i == (near + 1) // 2
        late = late or (turns and near % 2 == 1)
        order.add("I" if late else "B", 1)
        late = late or (turns and near % 2 == 0)
        order.add("I" if late else "B", 0)
    for _ in range(half - near - 1):
        order.weight()
        order.add("I", 0)
    while order.owed:
        order.weight()
    return order.actions


class _Order:
    """Actions so far; each phase takes its micro-batches in turn."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.actions: list[Action] = []
        self.done = {(op, phase): 0 for op in "FB" for phase in (0, 1)}
        self.owed: deque[Action] = deque()

    def add(self, op: str, phase: int) -> None:
        key = ("F" if op == "F" else "B", phase)
        action = Action(op, *self.place(phase, self.done[key]))
        self.done[key] += 1
        self.actions.append(action)
        if op == "I":
            self.owed.append(Action("W", action.chunk, action.micro_batch))

    def weight(self) -> None:
        self.actions.append(self.owed.popleft())
