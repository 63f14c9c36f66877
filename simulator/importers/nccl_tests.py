"""Which collective times does a log of nccl-tests hold? Reads the text table and the JSON file (`-J`).

The columns `size` and `time` mean what they mean here: the larger of a rank's send and receive buffer in bytes, and
microseconds per operation. Which columns there are says the log's own line of names, which differs between versions
(with or without `redop` and `root`, `error` or `#wrong`, time stamps). Logs of rccl-tests have the same layout, and
what mpirun and srun put before each line is taken off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.store import Measurement, Results

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
}
DTYPES = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "fp8_e4m3": "fp8"}
PLACEMENTS = ("out_of_place", "in_place")
RIGHT = ("0", "N/A", "None")  # what stands in the column #wrong where nothing is, or nothing was checked

_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_LAUNCHER = re.compile(r"\[\d+,\d+\](?:<std\w+>)?:? ?|\d+: ")
_RANK = re.compile(
    r"#\s+Rank\s+\d+\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s*(.*)"
)
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*(?:\s|$)")
_BLANK_COLUMNS = re.compile(r"\S {20,}\S")
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+FAILED")


class LogError(ValueError):
    """The file is no log of nccl-tests, or lacks something that must be told beside it."""


class _Timed(NamedTuple):
    """What a row says of one placement: seconds, algorithm and bus bandwidth (GB/s), wrong values."""

    seconds: float
    algorithm: float
    bus: float
    wrong: str


@dataclass(frozen=True)
class _Row:
    """One line of a table: where it stood (`log:17`), the buffer size, and what was measured per placement."""

    where: str
    size: int
    dtype: str
    results: Mapping[str, _Timed]


class _Device(NamedTuple):
    """One rank: the group it measured in, its host, its GPU's number there and name."""

    group: str
    host: str
    number: int
    name: str


@dataclass
class _Run:
    """One run of one program; a log may hold several, one after the other."""

    program: str | None = None
    library: str | None = None
    devices: list[_Device] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)

    @property
    def group(self) -> list[_Device]:
        """The ranks of the first group: groups run side by side, so one of them counts."""
        return [device for device in self.devices if device.group == self.devices[0].group]


def read_nccl_tests(
    path: Path,
    *,
    op: str | None = None,
    num_ranks: int | None = None,
    placement: str = "out_of_place",
    gpus_per_node: int | None = None,
) -> Results:
    """The log's measurements, one repeat each, as `clustersim calibrate run` would store them.

    `op` and `num_ranks` are needed where the log does not say (older versions name no operation; the file's name may
    do). Ranks are numbered as the GPUs of a cluster whose nodes have `gpus_per_node`, which is only needed where
    fewer took part. Raises LogError with file and line: nothing to read, a line cut off, wrong results, or
    bandwidths that do not belong to the operation.
    """
    if placement not in PLACEMENTS:
        raise LogError(f"placement {placement}: {' or '.join(PLACEMENTS)}")
    if op is not None and op not in OPERATIONS.values():
        raise LogError(f"{op}: no collective that nccl-tests measures ({', '.join(OPERATIONS.values())})")
    text = path.read_text(encoding="utf-8", errors="replace")
    runs = [_from_json(path, text)] if text.lstrip().startswith("{") else _from_text(path, text)
    runs = [run for run in runs if run.rows]
    if not runs:
        raise LogError(f"{path}: holds no results of nccl-tests")
    groups = [_ranks(path, run, num_ranks, gpus_per_node) for run in runs]
    measurements = [
        _measurement(row, _operation(path, run, op), ranks, placement)
        for run, ranks in zip(runs, groups, strict=True)
        for row in run.rows
        if row.size and placement in row.results
    ]
    return Results(_machine(runs, groups), tuple(measurements))


def bus_factor(op: str, num_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth as nccl-tests defines it (its doc/PERFORMANCE.md)."""
    n = num_ranks
    return {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "reduce": 1.0, "send_recv": 1.0}.get(
        op, (n - 1) / n
    )


def _operation(path: Path, run: _Run, given: str | None) -> str:
    """What was asked for, else the program that the log names, else the one that the file is named after."""
    named = _PROGRAM.search(path.name)
    program = run.program or (named[1] if named else None)
    if given is not None:
        return given
    if program is None:
        known = ", ".join(OPERATIONS.values())
        raise LogError(f"{path}: does not say which operation it measured; name one ({known})")
    if program not in OPERATIONS:
        raise LogError(f"{path}: {program}_perf is no operation that is read ({', '.join(OPERATIONS)})")
    return OPERATIONS[program]


def _ranks(path: Path, run: _Run, num_ranks: int | None, gpus_per_node: int | None) -> list[int]:
    """The run's ranks as numbers of GPUs, node after node in the order in which the log names them."""
    devices = run.group
    if not devices:
        if not num_ranks:
            raise LogError(f"{path}: does not list its ranks; give their number")
        return list(range(num_ranks))
    if num_ranks not in (None, len(devices)):
        raise LogError(f"{path}: lists {len(devices)} ranks, not {num_ranks}")
    hosts = list(dict.fromkeys(device.host for device in devices))
    most = max(sum(device.host == host for device in devices) for host in hosts)
    per_node = gpus_per_node or most
    ranks = [hosts.index(device.host) * per_node + device.number for device in devices]
    if len(hosts) == 1 or gpus_per_node is None:  # which GPUs of a node matters only beside those of others
        places = {host: iter(range(most)) for host in hosts}
        ranks = [hosts.index(device.host) * per_node + next(places[device.host]) for device in devices]
    elif max(device.number for device in devices) >= per_node or len(set(ranks)) < len(ranks):
        raise LogError(f"{path}: its ranks are on more than {per_node} GPUs of a node")
    return ranks


def _machine(runs: Sequence[_Run], groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    devices = [device for run in runs for device in run.group]
    machine: dict[str, Any] = {
        "device": "cuda",
        "backend": "nccl",
        "num_ranks": max(map(len, groups)),
        "num_nodes": max(len({device.host for device in run.group}) for run in runs),
        "gpu": ", ".join(sorted({device.name for device in devices})),
    }
    libraries = sorted({run.library for run in runs if run.library})
    return {**machine, "nccl": ", ".join(libraries)} if libraries else machine


def _measurement(row: _Row, op: str, ranks: Sequence[int], placement: str) -> Measurement:
    timed = row.results[placement]
    if timed.wrong not in RIGHT:
        raise LogError(f"{row.where}: {timed.wrong} wrong results: the collective did not work")
    factor = bus_factor(op, len(ranks))
    # Below, two decimals say too little.
    if timed.algorithm >= 10 and abs(timed.bus / timed.algorithm / factor - 1) > 0.01:
        raise LogError(
            f"{row.where}: busbw / algbw is {timed.bus / timed.algorithm:.3f}, but {op} over {len(ranks)} "
            f"ranks has {factor:.3f}: another operation or number of ranks?"
        )
    if op == "send_recv":  # every rank sends to the next and receives from the one before, at the same time
        pattern = "exchange" if len(ranks) == 2 else "ring"
        case = Case("send_recv", {"pattern": pattern, "size": row.size, "ranks": list(ranks)})
        return Measurement(case, 1, {pattern: [timed.seconds]})
    case = Case("collective", {"op": op, "size": row.size, "ranks": list(ranks), "dtype": row.dtype})
    return Measurement(case, 1, {op: [timed.seconds]})


def _from_text(path: Path, text: str) -> list[_Run]:
    runs, names = [_Run()], list[str]()
    for number, line in _lines(text):
        if line.startswith("#"):
            words = line[1:].split()
            if words[:2] == ["size", "count"]:
                names = _names(path, number, words)
            if words[:1] in (["nccl-tests"], ["nThread"], ["Collective"]) and runs[-1].rows:
                runs.append(_Run())
                names = []
            _comment(path, number, line, runs[-1])
        elif _ROW.match(line):
            if not names:
                raise LogError(f"{path}:{number}: a result before the line that names its columns")
            runs[-1].rows.append(_text_row(path, number, line, names))
        elif runs[-1].program is None and (program := _PROGRAM.search(line)):
            runs[-1].program = program[1]  # the command line that a script has printed
    return runs


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without what a launcher put before it."""
    for number, line in enumerate(text.splitlines(), start=1):
        prefix = _LAUNCHER.match(line)
        yield number, line[prefix.end() :].rstrip() if prefix else line.rstrip()


def _comment(path: Path, number: int, line: str, run: _Run) -> None:
    if rank := _RANK.fullmatch(line):
        run.devices.append(_Device(rank[1] or "0", rank[2], int(rank[3]), rank[4].strip()))
    if library := _LIBRARY.search(line):
        run.library = library[1]
    if program := _PROGRAM.search(line):
        run.program = program[1]
    if wrong := _OUT_OF_BOUNDS.match(line):
        raise LogError(f"{path}:{number}: {wrong[1]} values out of bounds: the collective did not work")


def _names(path: Path, number: int, words: Sequence[str]) -> list[str]:
    """The columns up to the last result: [size, count, type, ..., time, algbw, busbw, #wrong, ..., time, ...]."""
    if "cputime" in words:
        raise LogError(
            f"{path}:{number}: times of the host, not of the collective; run nccl-tests without -C"
        )
    names = [word for word in words if word != "timestamp"]
    if names.count("time") != 2 or "type" not in names:
        raise LogError(f"{path}:{number}: names other columns than nccl-tests: {' '.join(words)[:80]}")
    return names


def _text_row(path: Path, number: int, line: str, names: Sequence[str]) -> _Row:
    """One line of the table. Raises LogError if it has fewer columns than `names`, or no numbers in them."""
    fields = line.split()
    first, second = (place for place, name in enumerate(names) if name == "time")
    width = second - first
    begins = dict(zip(PLACEMENTS, (first, second), strict=True))
    if _BLANK_COLUMNS.search(line):  # a replayed trace has no out-of-place results
        begins = {"in_place": first}
    needed = first + width * len(begins)
    if len(fields) < needed:
        raise LogError(f"{path}:{number}: {len(fields)} of {needed} columns; is the line cut off?")
    try:
        results = {
            placement: _text_timed(fields[begin : begin + 4], names[first + 3])
            for placement, begin in begins.items()
        }
    except ValueError as error:
        raise LogError(f"{path}:{number}: {error}; is the line damaged?") from None
    dtype = fields[names.index("type")]
    return _Row(f"{path}:{number}", int(fields[0]), DTYPES.get(dtype, dtype), results)


def _text_timed(fields: Sequence[str], checked: str) -> _Timed:
    """The older column `error` holds the largest deviation, rounding included; `#wrong` counts wrong values."""
    wrong = fields[3] if checked == "#wrong" else "N/A"
    if wrong != "N/A":
        wrong = f"{float(wrong):g}"
    return _Timed(float(fields[0]) * 1e-6, float(fields[1]), float(fields[2]), wrong)


def _from_json(path: Path, text: str) -> _Run:
    try:
        log = json.loads(text)
        program = _PROGRAM.search(" ".join(log.get("args", ())))
        listed = log.get("config", {}).get("devices", ())
        devices = [
            _Device(str(d["group"]), d["hostname"], int(d["device"]), d["device_info"]) for d in listed
        ]
        library = str(log["nccl_version"]) if "nccl_version" in log else None
        rows = [_json_row(f"{path}: results[{n}]", entry) for n, entry in enumerate(log["results"])]
    except json.JSONDecodeError as error:
        raise LogError(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}; is it cut off?"
        ) from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LogError(f"{path}: not as nccl-tests -J writes it: {error}") from None
    return _Run(program[1] if program else None, library, devices, rows)


def _json_row(where: str, entry: Mapping[str, Any]) -> _Row:
    results = {}
    for placement in PLACEMENTS:
        part = entry.get(placement)
        if part:
            wrong = part["nwrong"]
            said = "N/A" if wrong is None else f"{float(wrong):g}"
            results[placement] = _Timed(part["time"] * 1e-6, part["alg_bw"], part["bus_bw"], said)
    return _Row(where, int(entry["size"]), DTYPES.get(entry["type"], entry["type"]), results)
