"""What a stage holds of its chunks at the moments of a schedule when it may hold most."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.program.schedules import SCHEDULES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Beginnings of backwards: `held[i, c]` micro-batches of content c are in flight, and content `running[i]` runs."""

    held: Floats
    running: Ints


@lru_cache(maxsize=4096)
def moments(
    schedule: str, stage: int, num_stages: int, num_micro_batches: int, contents: tuple[int, ...]
) -> Moments:
    """The moments of a stage whose chunk c has content `contents[c]`; none of them holds less than another in all."""
    num_chunks, num_contents = len(contents), max(contents) + 1
    if schedule == "gpipe":
        counts = np.full((1, num_chunks), float(num_micro_batches))
        running = np.array([contents[-1]])
    else:
        counts, chunks = _backwards(
            schedule, stage, num_stages, enough(schedule, num_stages, num_micro_batches), num_chunks
        )
        running = np.array(contents)[chunks]
    held = np.zeros((len(counts), num_contents))
    for chunk, content in enumerate(contents):
        held[:, content] += counts[:, chunk]
    rows = np.unique(np.column_stack([held, running]), axis=0)
    more = (rows[None, :, :-1] >= rows[:, None, :-1]).all(axis=2) & (rows[None, :, -1] == rows[:, None, -1])
    np.fill_diagonal(more, False)
    rows = rows[~more.any(axis=1)]
    return Moments(rows[:, :-1], rows[:, -1].astype(np.int64))


def enough(schedule: str, num_stages: int, num_micro_batches: int) -> int:
    """Micro-batches after which a stage has held the most that it ever will."""
    rounds = {"1f1b": 1, "interleaved": 3}.get(schedule, 4)
    return min(num_micro_batches, rounds * num_stages)


def _backwards(
    schedule: str, stage: int, num_stages: int, num_micro_batches: int, num_chunks: int
) -> tuple[Floats, Ints]:
    """(in flight by chunk, chunk) at the beginning of every backward."""
    held, counts, chunks = [0] * num_chunks, [], []
    for action in SCHEDULES[schedule](stage, num_stages, num_micro_batches, num_chunks):
        if action.op == "F":
            held[action.chunk] += 1
        elif action.op in ("B", "I"):
            counts.append(tuple(held))
            chunks.append(action.chunk)
            held[action.chunk] -= 1
    return np.array(counts, dtype=float), np.array(chunks, dtype=np.int64)
