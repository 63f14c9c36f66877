"""When does a stage ask for each message, where a schedule's receives are laid out ahead of need?

PyTorch's pipeline runtime lets all stages run through their schedules in lockstep, once, before training: whenever a
stage's action sends something, the receive is noted in the receiver's list at the place it has reached by then
(`_add_send_recv` in torch.distributed.pipelining.schedules, 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from simulator.program.schedules import Action

Message = tuple[str, int, int]
"""(F or B, virtual stage that receives it, micro-batch)."""


def asked_after(schedules: Sequence[Sequence[Action]], chunks: int) -> list[dict[Message, int]]:
    """For each stage, how many of its own actions it has behind it when it asks for each message.

    `schedules` are those of all stages in order. Raises ValueError where they wait for each other.
    """
    num_stages = len(schedules)
    last = num_stages * chunks - 1
    waiting = [padded(schedule, stage, num_stages, chunks) for stage, schedule in enumerate(schedules)]
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


def padded(schedule: Sequence[Action], stage: int, num_stages: int, chunks: int) -> list[Action | None]:
    """The interleaved schedule with the pauses (None) that keep stages in step: before the first action, between
    warm-up and the first backward, and before every backward of the cool-down."""
    forwards = len(list(takewhile(lambda action: action.op == "F", schedule)))
    warmup = forwards if 2 * forwards == len(schedule) else forwards - 1
    cooldown = len(list(takewhile(lambda action: action.op == "B", reversed(schedule))))
    cooldown -= int(warmup < forwards)  # the last pair's own backward follows its forward at once
    pause = num_stages * chunks + 2 * (num_stages - 1 - stage) - warmup - stage
    steady = schedule[warmup : len(schedule) - cooldown]
    tail = [item for action in schedule[len(schedule) - cooldown :] for item in (None, action)]
    return [*[None] * stage, *schedule[:warmup], *[None] * pause, *steady, *tail]
