"""Point to point: one rank sends, another receives; or every rank sends to the next of its group at once."""

from __future__ import annotations

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """The message as a whole; a shift has one from each rank."""
    senders = range(len(layout)) if op == "shift" else range(1)
    return Schedule(1.0, tuple(Transfer(0, s, (s + 1) % len(layout), s, False) for s in senders))


def not_two(op: str, group: GroupShape) -> str | None:
    """A message has two ends."""
    if op == "shift" or group.num_ranks == 2:
        return None
    return f"send_recv is between 2 ranks, not {group.num_ranks}"


@algorithm("point_to_point", ("send_recv", "shift"), schedule=schedule, refuses=not_two)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """One hop, over the scale-up link or over the network."""
    outside = int(group.num_nodes > 1)
    return Movement("cycle" if op == "shift" else "pair", size, 1 - outside, outside)
