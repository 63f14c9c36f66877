"""Which collective times does a log of nccl-tests hold? Reads the text table and the JSON file (`-J`).

The columns `size` and `time` mean what they mean here: the larger of a rank's send and receive buffer in bytes, and
microseconds per operation. Logs of rccl-tests have the same layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

_PROGRAM = re.compile(r"\b(" + "|".join(OPERATIONS) + r")_perf\b")
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+(.*)")


class LogError(ValueError):
    """The file is no log of nccl-tests, or lacks something that must be told beside it."""


@dataclass(frozen=True)
class _Row:
    """One line of the table: where it stood, the buffer size, and per placement (seconds, algbw, busbw, wrong)."""

    line: int
    size: int
    dtype: str
    results: Mapping[str, tuple[float, float, float, str]]


def read_nccl_tests(
    path: Path, *, op: str | None = None, num_ranks: int | None = None, placement: str = "out_of_place"
) -> Results:
    """The log's measurements, one repeat each, as `clustersim calibrate run` would store them.

    `op` and `num_ranks` are needed where the log does not say (older versions name no operation). Raises LogError
    with file and line: nothing to read, wrong results, or bandwidths that do not belong to the operation.
    """
    if placement not in PLACEMENTS:
        raise LogError(f"placement {placement}: {' or '.join(PLACEMENTS)}")
    text = path.read_text(encoding="utf-8", errors="replace")
    parsed = _from_json(path, text) if text.lstrip().startswith("{") else _from_text(text)
    machine, rows, found_op = parsed
    op, ranks = op or found_op, num_ranks or machine["num_ranks"]
    if not rows:
        raise LogError(f"{path}: holds no results of nccl-tests")
    if op is None:
        raise LogError(
            f"{path}: does not say which operation it measured; name one ({', '.join(OPERATIONS.values())})"
        )
    if op not in OPERATIONS.values():
        raise LogError(f"{op}: no collective that nccl-tests measures ({', '.join(OPERATIONS.values())})")
    if not ranks:
        raise LogError(f"{path}: does not list its ranks; give their number")
    measurements = [
        _measurement(path, row, op, ranks, placement) for row in rows if placement in row.results and row.size
    ]
    return Results({**machine, "num_ranks": ranks}, tuple(measurements))


def bus_factor(op: str, num_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth as nccl-tests defines it (its doc/PERFORMANCE.md)."""
    n = num_ranks
    return {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "reduce": 1.0, "send_recv": 1.0}.get(
        op, (n - 1) / n
    )


def _measurement(path: Path, row: _Row, op: str, ranks: int, placement: str) -> Measurement:
    seconds, algorithm, bus, wrong = row.results[placement]
    if wrong not in ("0", "N/A", "None"):
        raise LogError(f"{path}:{row.line}: {wrong} wrong results: the collective did not work")
    factor = bus_factor(op, ranks)
    if algorithm >= 10 and abs(bus / algorithm / factor - 1) > 0.01:  # below, two decimals say too little
        raise LogError(
            f"{path}:{row.line}: busbw / algbw is {bus / algorithm:.3f}, but {op} over {ranks} ranks "
            f"has {factor:.3f}: another operation or number of ranks?"
        )
    case = Case("collective", {"op": op, "size": row.size, "ranks": list(range(ranks)), "dtype": row.dtype})
    return Measurement(case, 1, {op: [seconds]})


def _from_text(text: str) -> tuple[dict[str, Any], list[_Row], str | None]:
    program = _PROGRAM.search(text)
    ranks = [match.groups() for match in map(_RANK.match, text.splitlines()) if match]
    rows = [row for number, line in enumerate(text.splitlines(), start=1) if (row := _text_row(number, line))]
    described = _machine([(group or "0", host, gpu.strip()) for _, group, host, gpu in ranks])
    return described, rows, OPERATIONS[program[1]] if program else None


def _text_row(number: int, line: str) -> _Row | None:
    match = _ROW.fullmatch(line.rstrip())
    if match is None:
        return None
    size, _, dtype, _, _, rest = match.groups()
    fields = rest.split()
    if len(fields) < 4:
        return None
    # A replayed trace leaves the out-of-place columns blank.
    quads = [fields[:4], fields[4:8]] if len(fields) >= 8 else [None, fields[:4]]
    try:
        results = {
            placement: (float(q[0]) * 1e-6, float(q[1]), float(q[2]), q[3])
            for placement, q in zip(PLACEMENTS, quads, strict=True)
            if q is not None
        }
    except ValueError:
        return None
    return _Row(number, int(size), DTYPES.get(dtype, dtype), results)


def _from_json(path: Path, text: str) -> tuple[dict[str, Any], list[_Row], str | None]:
    try:
        log = json.loads(text)
        program = _PROGRAM.search(" ".join(log.get("args", ())))
        devices = log.get("config", {}).get("devices", ())
        rows = [_json_row(entry) for entry in log["results"]]
    except json.JSONDecodeError as error:
        raise LogError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise LogError(f"{path}: not as nccl-tests -J writes it: {error}") from None
    described = _machine([(str(d["group"]), d["hostname"], d["device_info"]) for d in devices])
    if "nccl_version" in log:
        described["nccl"] = log["nccl_version"]
    return described, rows, OPERATIONS[program[1]] if program else None


def _json_row(entry: Mapping[str, Any]) -> _Row:
    results = {}
    for placement in PLACEMENTS:
        part = entry.get(placement)
        if part:
            wrong = part["nwrong"]
            said = "N/A" if wrong is None else f"{float(wrong):g}"
            results[placement] = (part["time"] * 1e-6, part["alg_bw"], part["bus_bw"], said)
    return _Row(1, int(entry["size"]), DTYPES.get(entry["type"], entry["type"]), results)


def _machine(devices: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """What ran it, from (group, host, GPU) of each rank; groups run side by side, so one of them counts."""
    listed = list(devices)
    first = [device for device in listed if device[0] == listed[0][0]] if listed else []
    return {
        "device": "cuda",
        "backend": "nccl",
        "num_ranks": len(first),
        "num_nodes": len({host for _, host, _ in first}),
        "gpu": ", ".join(sorted({gpu for _, _, gpu in first})),
    }
