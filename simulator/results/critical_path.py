"""What kinds of work make up the chain of tasks that determines the step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.critical_path import critical_tasks

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Program


def critical_seconds(program: Program, timeline: Timeline, step: float) -> dict[str, float]:
    """Seconds by kind along the critical path, longest first; they sum to `step`.

    What the path does not explain (waiting for the slowest of many equal ranks) is `other`.
    """
    path = critical_tasks(program, timeline.start, timeline.end)
    seconds = timeline.seconds_by_kind(path)
    rest = step - sum(seconds.values())
    if rest > 1e-12 * step:
        seconds["other"] = seconds.get("other", 0.0) + rest
    return dict(sorted(((k, s) for k, s in seconds.items() if s > 0.0), key=lambda item: (-item[1], item[0])))
