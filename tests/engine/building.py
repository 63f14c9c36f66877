"""A short way to write programs by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from simulator.program.program import CapacityChange, Draws, Lane, Phase, Program, Resource, Task


def work(
    amount: float,
    *on: int,
    latency: float = 0.0,
    cap: float = inf,
    weight: float = 1.0,
    draws: Draws | None = None,
    kind: str = "compute",
    label: str = "work",
    lane: int = 0,
) -> Phase:
    """`amount` units that draw 1 from each resource of `on` (or `draws`); without either, one unit per second."""
    drawn = draws if draws is not None else tuple((resource, 1.0) for resource in on)
    return Phase(kind, label, amount, drawn, latency, cap if drawn or cap < inf else 1.0, weight, lane=lane)


def program(
    capacities: Sequence[float],
    *tasks: Task | Phase,
    changes: Sequence[tuple[float, int, float]] = (),
) -> Program:
    """Tasks queue in the order given; a bare phase is a task on a lane of its own."""
    lanes = max([lane for task in tasks if isinstance(task, Task) for lane in task.lanes], default=-1) + 1
    made: list[Task] = []
    for task in tasks:
        if isinstance(task, Phase):
            task = Task((task,), (lanes,))
            lanes += 1
        made.append(task)
    queues: list[list[int]] = [[] for _ in range(lanes)]
    for i, task in enumerate(made):
        for lane in task.lanes:
            queues[lane].append(i)
    return Program(
        resources=[Resource(f"link{i}", "link", capacity) for i, capacity in enumerate(capacities)],
        lanes=[Lane(f"lane{i}", i) for i in range(lanes)],
        tasks=made,
        queues=queues,
        capacity_changes=[CapacityChange(*change) for change in changes],
    )
