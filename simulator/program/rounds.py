"""Which actions does a stage run between one update of its parameters and the next?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from simulator.program.schedules import Action, Schedule


@dataclass(frozen=True, slots=True)
class Round:
    """Actions in order, and those after which the gradients of their chunk are complete."""

    actions: Sequence[Action]
    final: frozenset[Action]


@lru_cache(maxsize=64)
def rounds(
    schedule: Schedule, stage: int, num_stages: int, num_micro_batches: int, chunks: int, num_steps: int = 1
) -> Sequence[Round]:
    """`num_steps` steps of `num_micro_batches` each, numbered on from step to step; an update follows each round.

    A schedule that flushes runs its steps one after the other. One that does not is ordered over all micro-batches
    at once and cut where the last backward of a step (of every micro-batch, if it updates that often) is done.
    """
    if schedule.flushes:
        one = schedule(stage, num_stages, num_micro_batches, chunks)
        steps = [[_later(a, k * num_micro_batches) for a in one] for k in range(num_steps)]
        return [Round(actions, _final(actions)) for actions in steps]
    every = 1 if schedule.updates_each_micro_batch else num_micro_batches
    actions = schedule(stage, num_stages, num_steps * num_micro_batches, chunks)
    return [Round(part, _final(part)) for part in _cut(actions, every, chunks)]


def _later(action: Action, micro_batches: int) -> Action:
    return Action(action.op, action.chunk, action.micro_batch + micro_batches) if micro_batches else action


def _final(actions: Sequence[Action]) -> frozenset[Action]:
    """The last weight gradient of each chunk."""
    last = {action.chunk: action for action in actions if action.op in ("B", "W")}
    return frozenset(last.values())


def _cut(actions: Sequence[Action], every: int, chunks: int) -> list[list[Action]]:
    """Runs of actions, each with the weight gradients of `every` micro-batches in all chunks."""
    parts: list[list[Action]] = [[]]
    complete = 0
    for action in actions:
        parts[-1].append(action)
        complete += action.op in ("B", "W")
        if complete == every * chunks:
            parts.append([])
            complete = 0
    return parts if parts[-1] else parts[:-1]
