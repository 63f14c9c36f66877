"""What a schedule is: the actions of a stage in order, and the registry in which each kind has its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulator.program.schedules.placement import Placement, loop


class Action(NamedTuple):
    """One unit of a stage's schedule: "F", "B" (whole backward), "I" (input gradient) or "W" (weight gradient)."""

    op: str
    chunk: int
    micro_batch: int


Order = Callable[[int, int, int, int], list[Action]]
"""(stage, num_stages, num_micro_batches, chunks per stage) -> actions in order."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A registered schedule; calling it gives the actions of one stage.

    `chunks`: model chunks per stage that it is made for, None for any number. `placement` says where the parts of the
    model stand, given (stages, chunks per stage). `period`: micro-batches after which its steady state repeats itself,
    given (stages, chunks); None where it never does. `flushes`: every step drains the pipeline before the next one
    begins; otherwise an update comes once per step, or `updates_each_micro_batch`. `versions`: copies of the
    parameters that stage s of p keeps, because micro-batches under way began with older ones. `num_stages` and
    `num_micro_batches`: the only numbers that it is made for, None for any; `even`: both must be even. `copies`: how
    often every part of the model stands somewhere in the pipeline; each copy sees its share of the micro-batches.
    `pairs`: made of forwards that each have a backward of another micro-batch beside them.
    """

    name: str
    order: Order
    chunks: int | None = 1
    placement: Callable[[int, int], Placement] = loop
    period: Callable[[int, int], int] | None = None
    flushes: bool = True
    updates_each_micro_batch: bool = False
    versions: Callable[[int, int], int] = lambda stage, num_stages: 1
    num_stages: int | None = None
    num_micro_batches: int | None = None
    even: bool = False
    copies: int = 1
    pairs: bool = False

    def __call__(self, stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
        return self.order(stage, num_stages, num_micro_batches, chunks)


SCHEDULES: dict[str, Schedule] = {}


def register(name: str, **properties: Any) -> Callable[[Order], Order]:
    """Enter a function that orders actions under `name`; the properties are the fields of `Schedule`."""

    def keep(function: Order) -> Order:
        SCHEDULES[name] = Schedule(name, function, **properties)
        return function

    return keep
