"""What does the length of each stretch of a compute stream depend on: its kernel, or a collective that it waits for?

Follow the stream back from its end. Where it stops for a collective, everything back to the collective's start is due
to that, whatever computes meanwhile; and if it queued behind another one, then to this one before it. Everywhere else
the kernel sets the pace. A collective beside it that takes a share of the GPU delays it by this share of the time in
which the two overlap, so that much is the collective's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.program.chains import Latency, Transfer
from simulator.program.program import Due


class Flight(Protocol):
    """A collective; `issued` is the number of stretches before it could start."""

    @property
    def transfer(self) -> Transfer: ...

    @property
    def issued(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time in which `kernel` computes (None: the stream stops) while `flight` is under way, if any is.

    `moves`: whether the flight moves bytes in it; its latency is over by then. `share`: of the GPU, that it takes.
    """

    kernel: Hashable | None
    flight: Flight | None
    moves: bool
    share: float


def dues(stretches: Sequence[Stretch]) -> list[Due]:
    """What each of the stretches, laid end to end, is due to."""
    found: list[Due] = []
    awaited: Flight | None = None
    for index in range(len(stretches) - 1, -1, -1):
        one = stretches[index]
        stops = one.kernel is None or (awaited is not None and awaited.issued <= index)
        awaited = one.flight if stops else None  # itself, or what it queued behind
        found.append(_due(one, awaited))
    return found[::-1]


def _due(one: Stretch, awaited: Flight | None) -> Due:
    if awaited is not None:
        return ((awaited.transfer if one.moves else Latency(awaited.transfer), 1.0),)
    if one.flight is None or not one.share:
        return ((one.kernel, 1.0),)
    return (one.kernel, 1.0 - one.share), (one.flight.transfer, one.share)
