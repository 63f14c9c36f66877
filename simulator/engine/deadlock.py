"""Why can the remaining tasks never end? Names the tasks, and the lanes, tasks or resources they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from simulator.engine.faults import DeadlockError
from simulator.program.program import Program

NUM_NAMED = 8


def deadlock(
    program: Program, start: Sequence[float], end: Sequence[float], capacities: Sequence[float]
) -> DeadlockError:
    """The error for a program that came to rest with tasks left: those whose `start` or `end` is negative."""
    blocked = tuple(i for i in range(len(program.tasks)) if end[i] < 0.0)
    before = lane_predecessors(program)
    starved = [i for i in blocked if start[i] >= 0.0]
    lines = [f"{len(blocked)} of {len(program.tasks)} tasks can never end."]
    lines += [_why_starved(program, i, capacities) for i in starved[:NUM_NAMED]]
    cycle = _cycle(program, blocked, end, before)
    if cycle:
        lines.append("These wait for each other:")
        lines += [_why_waiting(program, i, end, before) for i in cycle]
    rest = [i for i in blocked if i not in starved and i not in cycle]
    lines += [_why_waiting(program, i, end, before) for i in rest[:NUM_NAMED]]
    if len(rest) > NUM_NAMED:
        lines.append(f"... and {len(rest) - NUM_NAMED} more that wait for these")
    return DeadlockError("\n".join(lines), blocked)


def lane_predecessors(program: Program) -> list[list[tuple[int, int]]]:
    """For each task, (lane, the task before it in that lane's queue) wherever there is one; in-order lanes only."""
    before: list[list[tuple[int, int]]] = [[] for _ in program.tasks]
    for lane, queue in enumerate(program.queues):
        if program.lanes[lane].first_come:
            continue
        for previous, task in pairwise(queue):
            before[task].append((lane, previous))
    return before


def _cycle(
    program: Program,
    blocked: Sequence[int],
    end: Sequence[float],
    before: Sequence[Sequence[tuple[int, int]]],
) -> list[int]:
    """Tasks each of which waits for the next, the last for the first; empty if there are none."""
    settled: set[int] = set()
    for first in blocked:
        path: list[int] = []
        place: dict[int, int] = {}
        task = first
        while task not in settled:
            if task in place:
                return path[place[task] :]
            place[task] = len(path)
            path.append(task)
            awaited = [*program.tasks[task].deps, *(previous for _, previous in before[task])]
            unmet = [other for other in awaited if end[other] < 0.0]
            if not unmet:
                break
            task = unmet[0]
        settled.update(path)
    return []


def _why_waiting(
    program: Program, task: int, end: Sequence[float], before: Sequence[Sequence[tuple[int, int]]]
) -> str:
    reasons = [f"dependency {_named(program, dep)}" for dep in program.tasks[task].deps if end[dep] < 0.0]
    reasons += [
        f"{_named(program, previous)} ahead of it in lane {program.lanes[lane].name!r}"
        for lane, previous in before[task]
        if end[previous] < 0.0
    ]
    return f"- {_named(program, task)} waits for " + ", ".join(reasons)


def _why_starved(program: Program, task: int, capacities: Sequence[float]) -> str:
    drawn = {
        resource for phase in program.tasks[task].phases for resource, amount in phase.draws if amount > 0
    }
    empty = [program.resources[resource].name for resource in sorted(drawn) if capacities[resource] == 0.0]
    return f"- {_named(program, task)} started but is starved: no capacity left on {', '.join(empty)}"


def _named(program: Program, task: int) -> str:
    return f"task {task} {program.tasks[task].label!r}"
