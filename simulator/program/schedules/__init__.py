"""Pipeline schedules: the order in which a stage runs its forwards and backwards; one file each, registered by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One unit of a stage's schedule: "F", "B" (whole backward), "I" (input gradient) or "W" (weight gradient)."""

    op: str
    chunk: int
    micro_batch: int


Schedule = Callable[[int, int, int, int], list[Action]]
"""(stage, num_stages, num_micro_batches, chunks per stage) -> actions in order."""

SCHEDULES: dict[str, Schedule] = {}


def register(name: str) -> Callable[[Schedule], Schedule]:
    def keep(function: Schedule) -> Schedule:
        SCHEDULES[name] = function
        return function

    return keep


from simulator.program.schedules import gpipe, interleaved, one_f_one_b  # noqa: E402,F401  table of contents
