"""Where do raw measurements go, and which cases are already done?

A file of JSON lines: first one `machine` record, then one `measurement` per case, written when the case is
finished. An interrupted session leaves at most half a line, which the next one drops; its cases are not
measured again.

    {"record": "machine", "version": 1, "machine": {...}}
    {"record": "measurement", "benchmark": "collective", "parameters": {...}, "times": 4, "seconds": {...}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.calibration.microbenchmarks.case import Case

VERSION = 1


class StoreError(ValueError):
    """The file holds something else, or measurements of another machine."""


@dataclass(frozen=True)
class Measurement:
    """`seconds` per operation of each repeat, by series; each repeat ran `times` operations back to back."""

    case: Case
    times: int
    seconds: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Results:
    """Everything in a file: what was measured on, and the measurements in order."""

    machine: Mapping[str, Any]
    measurements: tuple[Measurement, ...]


class Store:
    """A results file open for appending. Use as a context manager."""

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        """Open or create. Raises StoreError if the file's measurements were made on a different machine."""
        self._path = path
        self.done: set[str] = set()
        if path.exists() and path.stat().st_size:
            kept = read_results(path)
            _check_same_machine(path, kept.machine, machine)
            self.done = {measurement.case.key for measurement in kept.measurements}
            _drop_half_line(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_machine_line(machine))
        self._file = path.open("a", encoding="utf-8")

    def add(self, measurement: Measurement) -> None:
        """Append and force to disk, so that a crash loses nothing finished."""
        self._file.write(_measurement_line(measurement))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(measurement.case.key)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def results_text(results: Results) -> str:
    """A whole results file; `read_results` reads it back."""
    return _machine_line(results.machine) + "".join(map(_measurement_line, results.measurements))


def read_results(path: Path) -> Results:
    """Every complete record of the file. Raises StoreError, with the line, for anything that is not one."""
    lines = path.read_text(encoding="utf-8").split("\n")
    complete = [(number, line) for number, line in enumerate(lines[:-1], start=1) if line.strip()]
    records = [_record(path, number, line) for number, line in complete]
    if not records or records[0].get("record") != "machine":
        raise StoreError(
            f"{path}:1: does not begin with the machine it was measured on; is it a results file?"
        )
    if records[0].get("version") != VERSION:
        raise StoreError(f"{path}:1: version {records[0].get('version')}, this program reads {VERSION}")
    measurements = [
        _measurement(path, number, record)
        for (number, _), record in zip(complete[1:], records[1:], strict=True)
    ]
    return Results(records[0]["machine"], tuple(measurements))


def _machine_line(machine: Mapping[str, Any]) -> str:
    return json.dumps({"record": "machine", "version": VERSION, "machine": machine}) + "\n"


def _measurement_line(measurement: Measurement) -> str:
    line = {
        "record": "measurement",
        "benchmark": measurement.case.benchmark,
        "parameters": measurement.case.parameters,
        "times": measurement.times,
        "seconds": {
            name: [float(f"{t:.6g}") for t in series] for name, series in measurement.seconds.items()
        },
    }
    return json.dumps(line) + "\n"


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise StoreError(f"{path}:{number}:{error.colno}: not JSON: {error.msg}") from None
    if not isinstance(record, dict):
        raise StoreError(f"{path}:{number}: not a record")
    return record


def _measurement(path: Path, number: int, record: Mapping[str, Any]) -> Measurement:
    try:
        case = Case(record["benchmark"], record["parameters"])
        return Measurement(case, int(record["times"]), record["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}:{number}: incomplete measurement: {error}") from None


def _check_same_machine(path: Path, kept: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [key for key in sorted({*kept, *now}) if kept.get(key) != now.get(key)]
    if differing:
        said = "; ".join(f"{key}: {kept.get(key)} there, {now.get(key)} here" for key in differing)
        raise StoreError(f"{path}: measured on another machine ({said}); write to another file")


def _drop_half_line(path: Path) -> None:
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])
