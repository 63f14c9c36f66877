"""Pipeline schedules: the order in which a stage runs its forwards and backwards; one file each, registered by name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from simulator.program.schedules import (  # noqa: F401  table of contents
    dualpipe,
    gpipe,
    interleaved,
    one_f_one_b,
    pipedream,
    xpipe,
    zero_bubble_h1,
    zero_bubble_v,
)
from simulator.program.schedules.schedule import SCHEDULES, Action, Schedule, register

__all__ = ["SCHEDULES", "Action", "Schedule", "find_schedule", "register"]


def find_schedule(name: str) -> Schedule | None:
    """The registered schedule of that name, or the one in a CSV file (see `importers.pipeline_csv`); None if neither.

    Raises ScheduleError for a file that holds none.
    """
    if name in SCHEDULES or not name.endswith(".csv"):
        return SCHEDULES.get(name)
    path = Path(name).expanduser()
    if not path.is_file():
        return None
    return _from_file(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _from_file(path: Path, changed: int) -> Schedule:
    from simulator.importers.pipeline_csv import read_schedule

    return read_schedule(path)
