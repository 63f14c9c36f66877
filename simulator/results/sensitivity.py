"""What limits the step, and how much: d(log step) / d(log rate of each resource), exact along the critical path."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from simulator.program.chains import Latency, Transfer
from simulator.results.critical_path import seconds_along_the_path
from simulator.results.delays import Delays
from simulator.results.limits import limiting

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Phase, Program

TIMES = ("launch", "latency", "kernel_latency")
"""Parameters that are times: more of them makes the step longer."""

KERNELS = ("tensor_core", "hbm", "kernel_latency")

Divide = Callable[[Hashable, "Phase"], tuple[Mapping[str, float], str]]
"""How seconds of a phase that are due to something divide over rates, and the name of the rest."""


def sensitivity(
    program: Program, timeline: Timeline, step: float, divide: Divide | None = None
) -> dict[str, float]:
    """d(log step) / d(log parameter), as long as the same path stays critical, the strongest first.

    For resources the parameter is their rate: -0.8 means that 1 % more of it saves 0.8 % of the step. `launch`,
    `latency` and `kernel_latency` are times. Those of times minus those of rates sum to 1: a step lasts half as long
    where everything is twice as fast. Without `divide`, work is due to what limits it alone: `tensor_core` are kernels
    with matrix products, `hbm` the others. Time that a kernel loses to a collective beside it is the collective's.
    Waiting for the slowest rank grows with the kernels' time.
    """
    parts = _Parts(program, Delays(program, timeline), divide)
    seconds = seconds_along_the_path(program, timeline, lambda tasks: parts.of(timeline, tasks))
    waiting = step - timeline.step_seconds
    kernels = {name: seconds.get(name, 0.0) for name in KERNELS}
    for name, amount in kernels.items():
        seconds[name] = amount + waiting * amount / (sum(kernels.values()) or 1.0)
    shares = (
        (name, (1.0 if name in TIMES else -1.0) * amount / step)
        for name, amount in seconds.items()
        if abs(amount) > 1e-12 * step
    )
    return dict(sorted(shares, key=lambda item: (-abs(item[1]), item[0])))


def gains(found: Mapping[str, float]) -> dict[str, float]:
    """What 1 % better of each saves, in percent of the step: more of a rate, less of a time; the most first."""
    better = {name: share if name in TIMES else -share for name, share in found.items()}
    return {name: gain for name, gain in better.items() if gain > 0.0}


class _Parts:
    """Divides the seconds of tasks over parameters."""

    def __init__(self, program: Program, delays: Delays, divide: Divide | None) -> None:
        self._delays = delays
        self._divide = divide
        self._limit = cache(lambda phase: limiting(program, phase))

    def of(self, timeline: Timeline, tasks: list[int]) -> dict[str, float]:
        found: dict[str, float] = {}

        def add(parts: Iterator[tuple[str, float]]) -> None:
            for name, amount in parts:
                found[name] = found.get(name, 0.0) + amount

        for phase, seconds, count in timeline.phase_seconds(tasks):
            latency = min(seconds, phase.latency * count)
            add(self._waiting(phase, latency))
            add(self._working(phase, seconds - latency))
        for phase, cause, seconds in self._delays.of(tasks):
            add(self._working(phase, -seconds))
            add(iter([(cause, seconds)]) if isinstance(cause, str) else self._working(cause, seconds))
        return found

    def _waiting(self, phase: Phase, seconds: float) -> Iterator[tuple[str, float]]:
        if not seconds:
            return
        if phase.kind == "launch" or self._divide is None or not phase.due_to:
            yield "launch" if phase.kind == "launch" else "latency", seconds
            return
        ((transfer, _),) = phase.due_to
        assert isinstance(transfer, Transfer)
        yield from self._shared(Latency(transfer), phase, seconds)

    def _working(self, phase: Phase, seconds: float) -> Iterator[tuple[str, float]]:
        if not seconds:
            return
        if self._divide is None or not phase.due_to:
            yield self._limit(phase), seconds
            return
        for what, part in phase.due_to:
            yield from self._shared(what, phase, part * seconds)

    def _shared(self, what: Hashable, phase: Phase, seconds: float) -> Iterator[tuple[str, float]]:
        assert self._divide is not None
        shares, rest = self._divide(what, phase)
        yield from ((name, share * seconds) for name, share in shares.items())
        yield rest, (1.0 - sum(shares.values())) * seconds
