"""How are all cases of a session measured, one after another, by every rank together?"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, benchmarks, cases_of
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device, this_device
from simulator.calibration.microbenchmarks.groups import Groups
from simulator.calibration.microbenchmarks.machine import describe_machine
from simulator.calibration.microbenchmarks.measuring import Effort, measure, slowest
from simulator.calibration.microbenchmarks.store import Measurement, Store

THOROUGH = Effort()
QUICK = Effort(repeats=5, warmups=1, budget=0.5)

Progress = Callable[[int, int], None]
"""Told (cases done, cases in all) by rank 0 after every case."""


def run_session(
    out: Path,
    *,
    names: list[str] | None = None,
    smallest: int = 4 << 10,
    largest: int = 64 << 20,
    quick: bool = False,
    stagger: float = 0.0,
    device: str | None = None,
    effort: Effort = THOROUGH,
    real_time: bool = False,
    progress: Progress | None = None,
) -> int:
    """Measure what `out` does not hold yet; returns the number of cases measured. Every rank calls this.

    Raises ValueError for unknown benchmarks, StoreError if `out` belongs to another machine; on all ranks
    alike.
    """
    if real_time:
        prefer_this_process()
    mine = this_device(int(os.environ.get("LOCAL_RANK", "0")), device)
    groups = Groups(mine.backend)
    try:
        scope = Scope(
            mine.kind, groups.size, smallest=smallest, largest=largest, quick=quick, stagger=stagger
        )
        return run_cases(cases_of(scope, names), out, mine, groups, effort=effort, progress=progress)
    finally:
        groups.close()


def run_cases(
    cases: Sequence[Case],
    out: Path,
    device: Device,
    groups: Groups,
    *,
    effort: Effort,
    progress: Progress | None = None,
) -> int:
    """Measure those of `cases` that `out` does not hold yet, in order."""
    with ExitStack() as stack:
        store, fault = None, None
        if groups.rank == 0:
            try:
                store = stack.enter_context(Store(out, describe_machine(device, groups.size)))
            except ValueError as error:
                fault = error
        fault = groups.from_first(fault)
        if fault is not None:
            raise fault
        done = groups.from_first(store.done if store else None)
        gc.disable()  # a collection in the middle of a timed loop would be measured with it
        pending = [case for case in cases if case.key not in done]
        for number, case in enumerate(pending, start=len(cases) - len(pending) + 1):
            measurement = _measure_case(case, device, groups, effort)
            gc.collect()
            if store and measurement:
                store.add(measurement)
            if progress and groups.rank == 0:
                progress(number, len(cases))
    return len(pending)


def _measure_case(case: Case, device: Device, groups: Groups, effort: Effort) -> Measurement | None:
    """The measurement on rank 0 (None if the device does not support the case), None on the others."""
    for ranks, copy in case.groups:
        groups.of(ranks, copy)  # torch wants every rank to make every group, in one order
    trial: Trial | None = None
    if groups.rank in case.ranks:
        trial = benchmarks()[case.benchmark].prepare(case, device, groups)
    times, series = measure(trial, groups, effort)
    everything = groups.gather(series)
    if everything is None:
        return None
    seconds = slowest([series for series in everything if series])
    return Measurement(case, times, seconds) if seconds else None


def prefer_this_process() -> None:
    """Run ahead of ordinary processes (round robin, priority 10) where allowed; later threads inherit it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except (OSError, AttributeError):
        return  # without the privilege, or not on Linux: measurements are noisier, not wrong
