"""DualPipe: micro-batches enter at both ends of the pipeline (DeepSeek-AI 2024, DeepSeek-V3 section 3.2.1)."""

from __future__ import annotations

from collections import deque

from simulator.program.schedules.placement import both_ways
from simulator.program.schedules.schedule import Action, register


@register("dualpipe", chunks=2, placement=both_ways, even=True, copies=2, period=lambda num_stages, chunks: 2)
def dualpipe(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """Half of the micro-batches go down the stages (chunk 0) and half up (chunk 1), each through a model of its own.

    With F&B for a forward and a backward side by side, (p/2 - 1)(F&B + B - 3W) is waited for, given m >= 2p; p + 1
    micro-batches of a stage are kept. In the steady state a stage runs a forward of one direction beside a backward of
    the other (`overlap.ep` hides the exchanges of each behind the computation of the other).

    Order as in the authors' release (deepseek-ai/DualPipe). Fewer micro-batches leave out the actions of those that
    are missing.
    """
    count = max(num_micro_batches, 2 * num_stages) // 2
    half, near = num_stages // 2, min(stage, num_stages - 1 - stage)
    order = _Order(down=0 if stage < half else 1)
    for _ in range(2 * (half - near - 1)):
        order.add("F", 0)
    for _ in range(near + 1):
        order.add("F", 0)
        order.add("F", 1)
    for _ in range(half - near - 1):
        order.add("I", 1)
        order.weight()
        order.add("F", 1)
    for _ in range(count - num_stages + near + 1):
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
    return [action for action in order.actions if action.micro_batch < num_micro_batches]


class _Order:
    """Actions so far; each direction takes its micro-batches in turn, the even ones down and the odd ones up.

    `down`: the chunk of the direction that enters at this half of the pipeline.
    """

    def __init__(self, down: int) -> None:
        self.down = down
        self.actions: list[Action] = []
        self.done = {(op, phase): 0 for op in "FB" for phase in (0, 1)}
        self.owed: deque[Action] = deque()

    def add(self, op: str, phase: int) -> None:
        key = ("F" if op == "F" else "B", phase)
        chunk = phase ^ self.down
        action = Action(op, chunk, 2 * self.done[key] + chunk)
        self.done[key] += 1
        self.actions.append(action)
        if op == "I":
            self.owed.append(Action("W", chunk, action.micro_batch))

    def weight(self) -> None:
        self.actions.append(self.owed.popleft())
