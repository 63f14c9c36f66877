"""What a collective algorithm has to state, and the table of algorithms.

To add one: a file of its own whose function (op, size, group) → `Movement` is registered with
`@algorithm(name, operations)`, a pattern of the same traffic in `patterns` if none fits, and a function
(op, layout) → `Schedule` of single transfers. The conformance tests play the schedule and compare it with
the movement and the pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.costs.collectives.group import GroupShape

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "broadcast_each",
    "reduce",
    "send_recv",
    "shift",
)


@dataclass(frozen=True, slots=True)
class Movement:
    """What an algorithm moves, before any speed is known.

    `volume` bytes flow along the edges of `pattern` (times their shares); the last byte has passed
    `steps` hops inside nodes and `network_steps` between nodes one after the other; every rank also
    copies `local` bytes within its own memory. Where parts wait for each other, all takes `stretch` times
    as long as the busiest link needs, however little else is going on.
    """

    pattern: str
    volume: float
    steps: int
    network_steps: int
    local: float = 0.0
    stretch: float = 1.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """In round `round`, `source` sends its state of `chunk` to `destination`, which adds (`reduce`) or
    stores it.

    Endpoints are positions in the group, or `patterns.REDUCER - node` for the reducer of a node.
    """

    round: int
    source: int
    destination: int
    chunk: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every transfer of one collective; each chunk is `fraction` of the collective's size."""

    fraction: float
    transfers: tuple[Transfer, ...]


MovementOf = Callable[[str, float, GroupShape], Movement]
ScheduleOf = Callable[[str, tuple[int, ...]], Schedule]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm: the operations it can do, its movement, and its transfers one by one.

    `refuses(op, group)` says why it cannot serve a group, or returns None.
    """

    name: str
    operations: tuple[str, ...]
    movement: MovementOf
    schedule: ScheduleOf
    refuses: Callable[[str, GroupShape], str | None]


ALGORITHMS: dict[str, Algorithm] = {}


def algorithm(
    name: str,
    operations: tuple[str, ...],
    schedule: ScheduleOf,
    refuses: Callable[[str, GroupShape], str | None] = lambda op, group: None,
) -> Callable[[MovementOf], MovementOf]:
    """Register the decorated movement as the algorithm `name`."""

    def register(movement: MovementOf) -> MovementOf:
        ALGORITHMS[name] = Algorithm(name, operations, movement, schedule, refuses)
        return movement

    return register


def refusal(name: str, op: str, group: GroupShape) -> str | None:
    """Why the algorithm cannot do `op` for `group`, or None. Raises ValueError for an unknown algorithm."""
    if name not in ALGORITHMS:
        raise ValueError(f"unknown collective algorithm {name!r} (known: {', '.join(sorted(ALGORITHMS))})")
    if op not in ALGORITHMS[name].operations:
        return f"{name} cannot do {op} (it can do {', '.join(ALGORITHMS[name].operations)})"
    return ALGORITHMS[name].refuses(op, group)
