"""Can this program be executed? One check per rule; each message names the task and the wrong value."""

from __future__ import annotations

from math import inf, isfinite

from simulator.engine.faults import ProgramError
from simulator.program.program import Phase, Program


def check_program(program: Program) -> None:
    """Raises ProgramError at the first fault. Cycles are found by running: see `deadlock`."""
    check_resources(program)
    check_capacity_changes(program)
    check_queues(program)
    check_dependencies(program)
    check_phases(program)


def initial_capacities(program: Program) -> list[float]:
    """Capacity of each resource (units per second) once the changes at time zero have been made."""
    capacities = [resource.capacity for resource in program.resources]
    for change in program.capacity_changes:
        if change.time == 0.0:
            capacities[change.resource] = change.capacity
    return capacities


def check_resources(program: Program) -> None:
    for i, resource in enumerate(program.resources):
        if not resource.capacity >= 0.0:
            raise ProgramError(f"resource {i} {resource.name!r}: capacity {resource.capacity} is not >= 0")


def check_capacity_changes(program: Program) -> None:
    for change in program.capacity_changes:
        if not 0 <= change.resource < len(program.resources):
            raise ProgramError(
                f"capacity change at {change.time} s: no resource {change.resource} "
                f"(there are {len(program.resources)})"
            )
        if not 0.0 <= change.time < inf:
            raise ProgramError(
                f"capacity change of resource {change.resource}: time {change.time} is not >= 0"
            )
        if not change.capacity >= 0.0:
            raise ProgramError(
                f"capacity change of resource {change.resource}: capacity {change.capacity} is not >= 0"
            )


def check_queues(program: Program) -> None:
    """Every task names at least one lane, and stands exactly once in the queue of each of its lanes."""
    tasks, num_lanes = program.tasks, len(program.lanes)
    if len(program.queues) != num_lanes:
        raise ProgramError(f"{len(program.queues)} queues for {num_lanes} lanes")
    lanes_of = [task.lanes for task in tasks]
    for lanes in set(lanes_of):
        if not lanes or len(set(lanes)) < len(lanes):
            i = lanes_of.index(lanes)
            wrong = f"names a lane twice: {lanes}" if lanes else "occupies no lane"
            raise ProgramError(f"task {i} {tasks[i].label!r} {wrong}")
    _check_first_come(program)
    for lane, queue in enumerate(program.queues):
        if len(set(queue)) < len(queue):
            twice = next(i for i in queue if queue.count(i) > 1)
            raise ProgramError(f"{_lane(program, lane)}: task {twice} stands in the queue more than once")
        if queue and not 0 <= min(queue) <= max(queue) < len(tasks):
            i = next(i for i in queue if not 0 <= i < len(tasks))
            raise ProgramError(f"{_lane(program, lane)}: no task {i} (there are {len(tasks)})")
        strangers = [i for i in queue if lane not in lanes_of[i]]
        if strangers:
            i = strangers[0]
            raise ProgramError(
                f"{_lane(program, lane)}: task {i} {tasks[i].label!r} is queued here but occupies lanes "
                f"{lanes_of[i]}"
            )
    if sum(map(len, lanes_of)) != sum(map(len, program.queues)):
        _raise_for_unqueued(program)


def _check_first_come(program: Program) -> None:
    seen: set[int] = set()
    for lane, queue in zip(program.lanes, program.queues, strict=True):
        if lane.first_come:
            twice = seen.intersection(queue)
            if twice:
                i = min(twice)
                raise ProgramError(
                    f"task {i} {program.tasks[i].label!r} stands in more than one first-come lane"
                )
            seen.update(queue)


def _raise_for_unqueued(program: Program) -> None:
    queued = [set(queue) for queue in program.queues]
    for i, task in enumerate(program.tasks):
        for lane in task.lanes:
            if not 0 <= lane < len(queued):
                raise ProgramError(f"task {i} {task.label!r}: no lane {lane} (there are {len(queued)})")
            if i not in queued[lane]:
                raise ProgramError(
                    f"{_lane(program, lane)}: task {i} {task.label!r} is missing from the queue"
                )


def check_dependencies(program: Program) -> None:
    num_tasks = len(program.tasks)
    named = {dep for task in program.tasks for dep in task.deps}
    if not named or 0 <= min(named) <= max(named) < num_tasks:
        return
    for i, task in enumerate(program.tasks):
        for dep in task.deps:
            if not 0 <= dep < num_tasks:
                raise ProgramError(
                    f"task {i} {task.label!r}: no task {dep} to depend on (there are {num_tasks})"
                )


def check_phases(program: Program) -> None:
    """Amounts are numbers of the right sign, and what is drawn on exists and ever has capacity."""
    best = initial_capacities(program)
    for change in program.capacity_changes:
        if change.time > 0.0:
            best[change.resource] = max(best[change.resource], change.capacity)
    # Builders share phases among thousands of tasks: check each once, where it comes first.
    numbered = zip(reversed(program.tasks), range(len(program.tasks) - 1, -1, -1), strict=True)
    first = {(id(task.phases), len(task.lanes)): i for task, i in numbered}
    seen: set[int] = set()
    for (_, num_lanes), i in reversed(first.items()):
        for phase in program.tasks[i].phases:
            if not 0 <= phase.lane < num_lanes:
                raise ProgramError(f"task {i}, phase {phase.label!r}: lane {phase.lane} of {num_lanes}")
            if id(phase) not in seen:
                seen.add(id(phase))
                fault = _fault_of_amounts(phase) or _fault_of_draws(phase, program, best)
                if fault:
                    raise ProgramError(f"task {i}, phase {phase.label!r}: {fault}")


def _fault_of_amounts(phase: Phase) -> str:
    if not 0.0 <= phase.work < inf:
        return f"work {phase.work} is not a finite number >= 0"
    if not 0.0 <= phase.latency < inf:
        return f"latency {phase.latency} is not a finite number >= 0"
    if not phase.cap > 0.0:
        return f"cap {phase.cap} is not > 0"
    if not 0.0 < phase.weight < inf:
        return f"weight {phase.weight} is not a finite number > 0"
    if phase.work > 0.0 and phase.cap == inf and not phase.draws:
        return f"nothing limits its rate: work {phase.work} without draws or cap"
    return ""


def _fault_of_draws(phase: Phase, program: Program, best: list[float]) -> str:
    last = -1
    for resource, amount in phase.draws:
        if not 0 <= resource < len(best):
            return f"no resource {resource} to draw on (there are {len(best)})"
        if resource <= last:
            return f"draws are not in ascending order of resource, each once: {phase.draws}"
        if not (amount >= 0.0 and isfinite(amount)):
            return f"draws {amount} from {program.resources[resource].name!r}: not a finite number >= 0"
        if amount > 0.0 and phase.work > 0.0 and best[resource] == 0.0:
            return f"draws on {program.resources[resource].name!r}, whose capacity is 0 and never changes"
        last = resource
    return ""


def _lane(program: Program, lane: int) -> str:
    return f"lane {lane} {program.lanes[lane].name!r}"
