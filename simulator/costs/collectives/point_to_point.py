"""Point to point: one rank sends, another receives."""

from __future__ import annotations

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """The message as a whole."""
    return Schedule(1.0, (Transfer(0, 0, 1, 0, False),))


def not_two(op: str, group: GroupShape) -> str | None:
    """A message has two ends."""
    return None if group.num_ranks == 2 else f"send_recv is between 2 ranks, not {group.num_ranks}"


@algorithm("point_to_point", ("send_recv",), schedule=schedule, refuses=not_two)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """One hop, over the scale-up link or over the network."""
    outside = int(group.num_nodes > 1)
    return Movement("pair", size, 1 - outside, outside)
