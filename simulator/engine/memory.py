"""How much memory does each rank class hold at its peak, of which kinds, and when?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

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
    held: dict[int, float] = {}
    peaks: dict[int, tuple[float, float, int]] = {}  # bytes, time, number of changes made by then
    for count, (time, (rank_class, _, change)) in enumerate(memory_changes(program, log), start=1):
        amount = held[rank_class] = held.get(rank_class, 0.0) + change
        if rank_class not in peaks or amount > peaks[rank_class][0]:
            peaks[rank_class] = (amount, time, count)
    by_kind = _held_after(program, log, {rank_class: peak[2] for rank_class, peak in peaks.items()})
    return [
        MemoryPeak(rank_class, peaks[rank_class][0], peaks[rank_class][1], by_kind[rank_class])
        for rank_class in sorted(peaks)
    ]


def memory_changes(
    program: Program, log: Sequence[tuple[float, int, bool]]
) -> Iterator[tuple[float, MemoryChange]]:
    """(time, change) in the order in which they happened, what is resident first."""
    for change in program.initial_memory:
        yield 0.0, change
    for time, task, has_ended in log:
        for change in program.tasks[task].at_end if has_ended else program.tasks[task].at_start:
            yield time, change


def _held_after(
    program: Program, log: Sequence[tuple[float, int, bool]], num_changes: dict[int, int]
) -> dict[int, dict[str, float]]:
    """Bytes by kind that each rank class holds after the given number of changes (counting those of all)."""
    held: dict[int, dict[str, float]] = {rank_class: {} for rank_class in num_changes}
    changes = islice(memory_changes(program, log), max(num_changes.values(), default=0))
    for count, (_, (rank_class, kind, amount)) in enumerate(changes, start=1):
        if count <= num_changes[rank_class]:
            kinds = held[rank_class]
            kinds[kind] = kinds.get(kind, 0.0) + amount
    return {
        rank_class: {kind: amount for kind, amount in kinds.items() if amount != 0.0}
        for rank_class, kinds in held.items()
    }
