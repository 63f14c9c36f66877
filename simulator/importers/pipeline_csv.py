"""Pipeline schedules as PyTorch writes them: one row per rank, one cell per action (`0F0,2I0,2W0`).

A cell is a part of the model (PyTorch's stage index), what is done with it, and a micro-batch: F forward, B whole
backward, I input gradient, W weight gradient. `(0F3;7B1)OVERLAP_F_B` becomes its two actions in turn. Communication
(SEND_F, RECV_B, UNSHARD, ...), which follows from the order of computation here, is left out, and so are empty cells.
"""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path

from simulator.program.schedules.placement import Placement
from simulator.program.schedules.play import finish
from simulator.program.schedules.schedule import Action, Schedule

CELL = re.compile(r"(\d+)([FBIW])(\d+)")
OVERLAPPED = re.compile(r"\((\d+[FBIW]\d+);(\d+[FBIW]\d+)\)OVERLAP_F_B")
LEFT_OUT = re.compile(r"\d*(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*")
LONGEST = 64_000_000


class ScheduleError(ValueError):
    """What is wrong with a file, and where."""


def read_schedule(path: Path) -> Schedule:
    """The schedule in a file. Raises ScheduleError, or OSError where it cannot be read."""
    if path.stat().st_size > LONGEST:
        raise ScheduleError(f"is larger than {LONGEST} bytes")
    return parse_schedule(path.read_text(encoding="utf-8", errors="replace"), str(path))


def parse_schedule(text: str, name: str) -> Schedule:
    """A schedule that knows one number of stages, chunks and micro-batches. Raises ScheduleError."""
    rows = [list(_cells(row, number)) for number, row in enumerate(csv.reader(StringIO(text)), start=1)]
    rows = [row for row in rows if row]
    if not rows:
        raise ScheduleError("has no actions")
    parts = [sorted({part for part, _, _ in row}) for row in rows]
    count = 1 + max(micro_batch for row in rows for _, _, micro_batch in row)
    _check_parts(parts)
    actions = [
        [Action(op, held.index(part), micro_batch) for part, op, micro_batch in row]
        for row, held in zip(rows, parts, strict=True)
    ]
    for rank, (mine, held) in enumerate(zip(actions, parts, strict=True)):
        _check_complete(mine, held, count, rank)
    placement = Placement(tuple(map(tuple, parts)))

    def order(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
        if (num_stages, num_micro_batches, chunks) != (len(rows), count, len(parts[0])):
            found = f"{len(rows)} stages of {len(parts[0])} chunks and {count} micro-batches"
            raise ScheduleError(f"is a schedule for {found}")
        return actions[stage]

    schedule = Schedule(
        name,
        order,
        chunks=len(parts[0]),
        placement=lambda num_stages, chunks: placement,
        num_stages=len(rows),
        num_micro_batches=count,
    )
    if finish(schedule, len(rows), count, len(parts[0])) is None:
        raise ScheduleError("lets its stages wait for each other for ever")
    return schedule


def write_schedule(schedule: Schedule, num_stages: int, num_micro_batches: int, chunks: int) -> str:
    """The actions of all stages in the same format; reads back to the same schedule."""
    placement = schedule.placement(num_stages, chunks)
    held = [part for stage in placement.parts for part in stage]
    if len(set(held)) < len(held):
        raise ScheduleError(f"{schedule.name} holds parts of the model twice, which the format cannot say")
    lines = []
    for stage in range(num_stages):
        order = sorted(placement.parts[stage])
        if list(placement.parts[stage]) != order:
            raise ScheduleError(f"{schedule.name} numbers its chunks in another order than the format")
        cells = (
            f"{placement.parts[stage][a.chunk]}{a.op}{a.micro_batch}"
            for a in schedule(stage, num_stages, num_micro_batches, chunks)
        )
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _cells(row: list[str], number: int) -> list[tuple[int, str, int]]:
    found = []
    for column, cell in enumerate(row, start=1):
        text = cell.strip()
        overlapped = OVERLAPPED.fullmatch(text)
        for part in overlapped.groups() if overlapped else (text,):
            action = CELL.fullmatch(part)
            if action:
                found.append((int(action[1]), action[2], int(action[3])))
            elif part and not LEFT_OUT.fullmatch(part):
                raise ScheduleError(
                    f"row {number}, cell {column}: {part[:40]!r} is no action such as 0F0, 2I0 or 2W0"
                )
    return found


def _check_parts(parts: list[list[int]]) -> None:
    held = sorted(part for stage in parts for part in stage)
    if held != list(range(len(held))):
        raise ScheduleError(f"parts {held} must be 0, 1, 2, ... and each stand on one rank")
    if len({len(stage) for stage in parts}) > 1:
        raise ScheduleError(f"ranks hold unequal numbers of parts: {', '.join(str(len(s)) for s in parts)}")


def _check_complete(actions: list[Action], parts: list[int], count: int, rank: int) -> None:
    """Every micro-batch once forward and once backward (whole, or in two parts) through every part."""
    done = {op: {(a.chunk, a.micro_batch) for a in actions if a.op == op} for op in "FBIW"}
    everything = {(chunk, i) for chunk in range(len(parts)) for i in range(count)}
    twice = len(actions) - sum(map(len, done.values()))
    if twice:
        raise ScheduleError(f"rank {rank} does {twice} actions twice")
    if done["I"] != done["W"]:
        chunk, micro_batch = min(done["I"] ^ done["W"])
        raise ScheduleError(
            f"rank {rank}: part {parts[chunk]}, micro-batch {micro_batch} has I without W, or W without I"
        )
    for what, found in (("F", done["F"]), ("B or I", done["B"] | done["I"])):
        missing = everything - found
        if missing:
            chunk, micro_batch = min(missing)
            raise ScheduleError(
                f"rank {rank}: part {parts[chunk]} has no {what} of micro-batch {micro_batch}"
            )
    if done["B"] & done["I"]:
        chunk, micro_batch = min(done["B"] & done["I"])
        raise ScheduleError(f"rank {rank}: part {parts[chunk]}, micro-batch {micro_batch} has both B and I")
