"""How much memory does each rank class hold at its peak, of which kinds, and when?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from simulator.program.program import MemoryChange, Program


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The most that one rank of `rank_class` holds, first reached at `time`; `by_kind` sums to `bytes`."""

    rank_class: int
    bytes: float
    time: float
    by_kind: dict[str, float]


def memory_peaks(program: Program, log: Sequence[tuple[float, int, bool]]) -> list[MemoryPeak]:
    """One peak per rank class that holds anything, by rank class.

    `log` has (time, task, whether it ended) in the order of execution: within an instant, what ended tasks
    free is gone before tasks that start allocate.
    """
    by_class: dict[int, list[tuple[float, MemoryChange]]] = {}
    for change in memory_changes(program, log):
        by_class.setdefault(change[1].rank_class, []).append(change)
    return [_peak(rank_class, by_class[rank_class]) for rank_class in sorted(by_class)]


def _peak(rank_class: int, changes: Sequence[tuple[float, MemoryChange]]) -> MemoryPeak:
    """The peak of one rank class from its (time, change), of which there is at least one."""
    held, most, when, made = 0.0, -inf, 0.0, 0
    for count, (time, (_, _, amount)) in enumerate(changes, start=1):
        held += amount
        if held > most:
            most, when, made = held, time, count
    kinds: dict[str, float] = {}
    for _, (_, kind, amount) in changes[:made]:
        kinds[kind] = kinds.get(kind, 0.0) + amount
    return MemoryPeak(
        rank_class, most, when, {kind: amount for kind, amount in kinds.items() if amount != 0.0}
    )


def memory_changes(
    program: Program, log: Sequence[tuple[float, int, bool]]
) -> Iterator[tuple[float, MemoryChange]]:
    """(time, change) in the order in which they happened, what is resident first."""
    for change in program.initial_memory:
        yield 0.0, change
    for time, task, has_ended in log:
        for change in program.tasks[task].at_end if has_ended else program.tasks[task].at_start:
            yield time, change
