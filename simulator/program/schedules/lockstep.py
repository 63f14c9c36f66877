"""When does a stage ask for each message, where a schedule's receives are laid out ahead of need?

PyTorch's pipeline runtime lets all stages run through their schedules in lockstep, once, before training: whenever a
stage's action sends something, the receive is noted in the receiver's list at the place it has reached by then
(`_add_send_recv` in torch.distributed.pipelining.schedules, 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.program.schedules.schedule import Action

AFTER_LAST_BACKWARD = 2
"""REDUCE_GRAD and RESHARD, which the runtime lists for every chunk, whatever its parameters are spread over."""

Message = tuple[str, int, int]
"""(F or B, virtual stage that receives it, micro-batch)."""


def asked_after(schedules: Sequence[Sequence[Action]], chunks: int) -> list[dict[Message, int]]:
    """For each stage, how many of its own actions it has behind it when it asks for each message.

    `schedules` are those of all stages in order. Raises ValueError where they wait for each other.
    """
    num_stages = len(schedules)
    last = num_stages * chunks - 1
    waiting = [slots(schedule) for schedule in schedules]
    done, found = [0] * num_stages, [dict[Message, int]() for _ in schedules]
    while any(waiting):
        progress = False
        for stage, queue in enumerate(waiting):
            if not queue:
                continue
            action = queue[0]
            if action is not None:
                virtual = action.chunk * num_stages + stage
                needs_none = virtual == (0 if action.op == "F" else last)
                if not needs_none and (action.op, virtual, action.micro_batch) not in found[stage]:
                    continue
                done[stage] += 1
                target = virtual + 1 if action.op == "F" else virtual - 1
                if 0 <= target <= last:
                    receiver = target % num_stages
                    found[receiver][action.op, target, action.micro_batch] = done[receiver]
            queue.pop(0)
            progress = True
        if not progress:
            raise ValueError("the stages of this schedule wait for each other")
    return found


def slots(schedule: Sequence[Action]) -> list[Action | None]:
    """What a stage runs through: its actions, and after the last backward of each chunk two (None) that reduce its
    gradients and give up its parameters. The pauses of the published order are gone by then."""
    last = {action.chunk: place for place, action in enumerate(schedule) if action.op == "B"}
    return [
        slot
        for place, action in enumerate(schedule)
        for slot in (action, *[None] * (AFTER_LAST_BACKWARD if last.get(action.chunk) == place else 0))
    ]
