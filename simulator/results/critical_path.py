"""What makes up the chain of tasks that determines the step: kinds of work, and the resources that limit it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from simulator.engine.critical_path import critical_tasks
from simulator.results.utilization import name_of

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Phase, Program

Parts = Iterable[tuple[str, float]]


def critical_seconds(program: Program, timeline: Timeline, step: float) -> dict[str, float]:
    """Seconds by kind along the critical path, longest first; they sum to `step`.

    What the path does not explain (waiting for the slowest of many equal ranks) is `other`.
    """
    seconds = _per_step(program, timeline, lambda phase, seconds, count: ((phase.kind, seconds),))
    rest = step - sum(seconds.values())
    if rest > 1e-12 * step:
        seconds["other"] = seconds.get("other", 0.0) + rest
    return dict(sorted(((k, s) for k, s in seconds.items() if s > 0.0), key=lambda item: (-item[1], item[0])))


def sensitivity(
    program: Program,
    timeline: Timeline,
    step: float,
    elasticities: Callable[[Phase], tuple[Mapping[str, float], str] | None] = lambda phase: None,
) -> dict[str, float]:
    """d(log step) / d(log parameter), to first order: what limits how much of the critical path.

    For resources the parameter is their rate: -0.8 means that 1 % more of it saves 0.8 % of the step, as long as the
    same path stays critical. `tensor_core` is the rate of kernels with matrix products, `hbm` that of the others;
    `launch`, `latency` and `kernel_latency` are times. Work that shares a resource with other work counts to what
    limits it alone, or is divided by its `elasticities` where they are known (see `results.sensitivity`). Waiting for
    the slowest rank grows with the kernels' time.
    """

    @cache
    def limit(phase: Phase) -> str:
        return limiting(program, phase)

    def parts(phase: Phase, seconds: float, count: float) -> Parts:
        known = elasticities(phase)
        if known is not None:
            shares, rest = known
            left = max(0.0, 1.0 - sum(shares.values()))
            return (*((name, share * seconds) for name, share in shares.items()), (rest, left * seconds))
        latency = min(seconds, phase.latency * count)
        return (
            ("launch" if phase.kind == "launch" else "latency", latency),
            (limit(phase), max(0.0, seconds - latency)),
        )

    seconds = _per_step(program, timeline, parts)
    waiting = step - timeline.step_seconds
    kernels = {name: seconds.get(name, 0.0) for name in ("tensor_core", "hbm", "kernel_latency")}
    for name, amount in kernels.items():
        seconds[name] = amount + waiting * amount / (sum(kernels.values()) or 1.0)
    signs = {"launch": 1.0, "latency": 1.0, "kernel_latency": 1.0}
    shares = (
        (name, signs.get(name, -1.0) * amount / step)
        for name, amount in seconds.items()
        if amount > 1e-12 * step
    )
    return dict(sorted(shares, key=lambda item: (-abs(item[1]), item[0])))


def limiting(program: Program, phase: Phase) -> str:
    """The resource that sets the rate of the phase's work when it runs alone; kernels go before links."""
    longest, name = 0.0, "cap"
    for number, amount in phase.draws:
        resource = program.resources[number]
        if resource.capacity and amount / resource.capacity > longest * (1 + 1e-9):
            longest, name = amount / resource.capacity, resource.kind
    if name == "gpu":
        return "tensor_core" if phase.flops else "hbm"
    return name_of(name)


def _per_step(
    program: Program, timeline: Timeline, parts: Callable[[Phase, float, float], Parts]
) -> dict[str, float]:
    found = _along_the_path(program, timeline, parts)
    return {name: seconds / timeline.num_steps for name, seconds in found.items()}


def _along_the_path(
    program: Program, timeline: Timeline, parts: Callable[[Phase, float, float], Parts]
) -> dict[str, float]:
    """Seconds of the critical path by the names that `parts` divides (phase, seconds, times run) into.

    As the path goes through a repeated stretch, so it goes through those left out, which last as long each.
    """
    path = critical_tasks(program, timeline.start, timeline.end)

    def summed(tasks: list[int]) -> dict[str, float]:
        found: dict[str, float] = {}
        for phase, seconds, count in timeline.phase_seconds(tasks):
            for name, amount in parts(phase, seconds, count):
                found[name] = found.get(name, 0.0) + amount
        return found

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
