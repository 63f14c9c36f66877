"""What the counters of a trace show: bytes in memory by kind, bytes per second over each link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.program.program import Program

Floats = npt.NDArray[np.float64]
Event = dict[str, Any]

MOST_POINTS = 2000
"""Per link: a use that changes more often is shown as its mean over so many equal parts of the step."""


def memory_counters(program: Program, timeline: Timeline) -> Iterator[Event]:
    """Bytes by kind on each rank class whenever they change; the allocator's slack is not in them."""
    held: dict[int, dict[str, float]] = {}
    for _, change in timeline.memory_changes():
        held.setdefault(change.rank_class, {})[change.kind] = 0.0
    pending: dict[int, float] = {}
    for time, change in timeline.memory_changes():
        for rank_class in [c for c, since in pending.items() if since < time]:
            yield _memory(rank_class, pending.pop(rank_class), held[rank_class])
        held[change.rank_class][change.kind] += change.amount
        pending[change.rank_class] = time
    for rank_class, since in pending.items():
        yield _memory(rank_class, since, held[rank_class])


def _memory(rank_class: int, time: float, held: dict[str, float]) -> Event:
    amounts = {kind: max(0, round(amount)) for kind, amount in held.items()}
    return {"ph": "C", "pid": rank_class, "ts": microseconds(time), "name": "memory (bytes)", "args": amounts}


def link_counters(program: Program, timeline: Timeline) -> Iterator[Event]:
    """GB/s over every link that was used, in the process after the rank classes.

    Raises ValueError if the program was executed without `trace=True`.
    """
    pid = len(program.rank_classes)
    links = [
        number
        for number, resource in enumerate(program.resources)
        if resource.kind != "gpu" and timeline.use[number] > 0.0
    ]
    histories = timeline.use_histories(links)
    for number, name in zip(links, link_names(program, links), strict=True):
        times, use = thinned(*histories[number], timeline.makespan)
        for time, rate in zip(times.tolist(), use.tolist(), strict=True):
            value = round(min(rate, program.resources[number].capacity) / 1e9, 6)
            yield {"ph": "C", "pid": pid, "ts": microseconds(time), "name": name, "args": {"GB/s": value}}


def link_names(program: Program, links: Sequence[int]) -> list[str]:
    """A name of its own for each link, with how many links it stands for; the NICs of a node are numbered."""
    seen: dict[str, int] = {}
    names = []
    for number in links:
        resource = program.resources[number]
        seen[resource.name] = count = seen.get(resource.name, 0) + 1
        name = resource.name if count == 1 else f"{resource.name} #{count}"
        names.append(f"{name} × {resource.members:,}" if resource.members > 1 else name)
    return names


def thinned(times: Floats, use: Floats, end: float) -> tuple[Floats, Floats]:
    """The step function (see `Timeline.use_history`) as it is, or its means over MOST_POINTS parts of [0, end]."""
    use = np.where(np.abs(use) < 1e-9 * np.abs(use).max(initial=1.0), 0.0, use)  # sums of rounded rates
    if len(times) > MOST_POINTS:
        edges = np.linspace(0.0, end, MOST_POINTS + 1)
        amount = np.concatenate([[0.0], np.cumsum(use[:-1] * np.diff(times))])
        use = np.append(np.diff(np.interp(edges, times, amount)) / np.diff(edges), 0.0)
        times = edges
    changes = np.append(True, use[1:] != use[:-1])
    return times[changes], use[changes]


def microseconds(time: float) -> float:
    """µs, rounded to ns."""
    return round(time * 1e9) / 1000.0
