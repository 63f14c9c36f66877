"""What makes up the chain of tasks that determines the step: how much of each kind of work?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.engine.critical_path import critical_tasks

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Program


def critical_seconds(program: Program, timeline: Timeline, step: float) -> dict[str, float]:
    """Seconds by kind along the critical path, longest first; they sum to `step`.

    What the path does not explain (waiting for the slowest of many equal ranks) is `other`.
    """
    seconds = seconds_along_the_path(program, timeline, timeline.seconds_by_kind)
    rest = step - sum(seconds.values())
    if rest > 1e-12 * step:
        seconds["other"] = seconds.get("other", 0.0) + rest
    return dict(sorted(((k, s) for k, s in seconds.items() if s > 0.0), key=lambda item: (-item[1], item[0])))


def seconds_along_the_path(
    program: Program, timeline: Timeline, summed: Callable[[list[int]], dict[str, float]]
) -> dict[str, float]:
    """Seconds of the critical path, per step, by the names that `summed` divides those of tasks into.

    As the path goes through a repeated stretch, so it goes through those left out, which last as long each.
    """
    found = _along_the_path(program, timeline, summed)
    return {name: seconds / timeline.num_steps for name, seconds in found.items()}


def _along_the_path(
    program: Program, timeline: Timeline, summed: Callable[[list[int]], dict[str, float]]
) -> dict[str, float]:
    path = critical_tasks(program, timeline.start, timeline.end)
    if not timeline.repetitions:
        return summed(path)
    stretches = [(one, set(one.tasks.tolist())) for one in timeline.repetitions]
    # Independent classes meet at the end: the path goes through the stretch of those that come last.
    repetition, repeated = max(stretches, key=lambda stretch: len(stretch[1].intersection(path)))
    times = repetition.count + (not repetition.alone)
    inside = summed([task for task in path if task in repeated])
    once = {name: seconds / times for name, seconds in inside.items()}
    total = sum(once.values())
    if repetition.alone:
        return {
            name: seconds * repetition.count * repetition.seconds / total for name, seconds in once.items()
        }
    scale = 1.0 + (repetition.count * repetition.seconds / total if total else 0.0)
    seconds = summed([task for task in path if task not in repeated])
    for name, amount in once.items():
        seconds[name] = seconds.get(name, 0.0) + scale * amount
    return seconds
