"""What kinds of work make up the chain of tasks that determines the step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.critical_path import critical_tasks

if TYPE_CHECKING:
    from simulator.engine.timeline import Repetition, Timeline
    from simulator.program.program import Program


def critical_seconds(program: Program, timeline: Timeline, step: float) -> dict[str, float]:
    """Seconds by kind along the critical path, longest first; they sum to `step`.

    What the path does not explain (waiting for the slowest of many equal ranks) is `other`.
    """
    path = critical_tasks(program, timeline.start, timeline.end)
    seconds = timeline.seconds_by_kind(path)
    if timeline.repetition is not None:
        seconds = _with_repetition(timeline, timeline.repetition, path, seconds)
    rest = step - sum(seconds.values())
    if rest > 1e-12 * step:
        seconds["other"] = seconds.get("other", 0.0) + rest
    return dict(sorted(((k, s) for k, s in seconds.items() if s > 0.0), key=lambda item: (-item[1], item[0])))


def _with_repetition(
    timeline: Timeline, repetition: Repetition, path: list[int], weighted: dict[str, float]
) -> dict[str, float]:
    """As the path goes through the repeated stretch, so it goes through those left out, which last as long each."""
    repeated = set(repetition.tasks.tolist())
    inside = timeline.seconds_by_kind(
        [task for task in path if task in repeated]
    )  # each counted 1 + count times
    once = {kind: amount / (1 + repetition.count) for kind, amount in inside.items()}
    total = sum(once.values())
    scale = repetition.count * repetition.seconds / total if total else 0.0
    return {
        kind: amount - inside.get(kind, 0.0) + once.get(kind, 0.0) * (1.0 + scale)
        for kind, amount in weighted.items()
    }
