"""How do several files about one machine become one set of measurements?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.store import Measurement, Results

SIZES = ("num_ranks", "num_nodes")
"""What files of one machine may differ in: how much of it took part."""


class MachineError(ValueError):
    """The files are of different machines."""


def combined(files: Mapping[Path, Results]) -> Results:
    """Measurements in the order of the files; repeats of equal cases together.

    Raises MachineError where the files' machines differ in anything but the number of ranks and nodes.
    """
    (first, reference), *others = files.items()
    machine: dict[str, Any] = dict(reference.machine)
    for path, results in others:
        _check_same_machine(first, reference.machine, path, results.machine)
        for size in SIZES:
            if size in results.machine:
                machine[size] = max(machine.get(size, 0), results.machine[size])
    taken: dict[str, tuple[Case, int, dict[str, list[float]]]] = {}
    for results in files.values():
        for measurement in results.measurements:
            case = measurement.case
            series = taken.setdefault(case.key, (case, measurement.times, {}))[2]
            for name, seconds in measurement.seconds.items():
                series.setdefault(name, []).extend(seconds)
    return Results(machine, tuple(Measurement(*each) for each in taken.values()))


def _check_same_machine(
    first: Path, machine: Mapping[str, Any], second: Path, other: Mapping[str, Any]
) -> None:
    keys = sorted({*machine, *other} - set(SIZES))
    differing = [key for key in keys if machine.get(key) != other.get(key)]
    if differing:
        said = "; ".join(f"{key}: {machine.get(key)} there, {other.get(key)} here" for key in differing)
        raise MachineError(f"{second}: of another machine than {first} ({said}); import them apart")
