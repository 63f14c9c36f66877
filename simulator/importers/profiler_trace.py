"""Which kernel and collective times does a PyTorch profiler trace hold?

Kernels are told apart by the shapes of the operator that launched them (profile with `record_shapes=True`):
matrix products, fused attention and operators that only move memory. Collectives carry their own description. A
trace of CPU operators alone yields those operators' times. Everything else is left out and counted.

A collective's time in the trace of one rank includes waiting for the ranks that come later. Traces of several ranks
of one job tell the two apart: of the ranks, the last one to come takes the shortest.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.store import Measurement, Results
from simulator.importers.combining import combined
from simulator.workloads.operators import DTYPE_BYTES

DTYPES = {
    "float": "fp32", "Float": "fp32", "c10::BFloat16": "bf16", "BFloat16": "bf16", "c10::Half": "fp16", "Half": "fp16",
    "c10::Float8_e4m3fn": "fp8", "Float8_e4m3fn": "fp8", "Byte": "fp8", "Char": "fp8",
}  # fmt: skip
COLLECTIVES = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather", "allgather": "all_gather", "all_gather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all", "alltoall": "all_to_all", "all_to_allv": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
MEMORY_BOUND = {"aten::native_layer_norm": "layer_norm", "aten::gelu": "gelu", "aten::_softmax": "softmax",
                "aten::copy_": "copy", "aten::add": "add"}  # fmt: skip


class TraceError(ValueError):
    """The file is no trace of the PyTorch profiler."""


@dataclass(frozen=True)
class Trace:
    """What a trace yields: measurements (one repeat per occurrence), and how often each unread name occurred."""

    results: Results
    unread: Mapping[str, int]
    rank: int = 0


Event = Mapping[str, Any]


def read_traces(paths: Sequence[Path]) -> Trace:
    """Traces of one job, or of several on one machine: kernels of all, collectives as the last rank saw them.

    Raises TraceError as `read_trace`, or where ranks did not see a collective equally often; MachineError where the
    traces are of different machines.
    """
    traces = [read_trace(path) for path in paths]
    together = combined({path: trace.results for path, trace in zip(paths, traces, strict=True)})
    ranks = sorted({trace.rank for trace in traces})
    per_rank = [
        combined(
            {path: trace.results for path, trace in zip(paths, traces, strict=True) if trace.rank == rank}
        )
        for rank in ranks
    ]
    measurements = [
        _as_the_last_rank_saw(measurement.case, per_rank, ranks)
        if measurement.case.benchmark == "collective"
        else measurement
        for measurement in together.measurements
    ]
    unread = sum((Counter(trace.unread) for trace in traces), Counter[str]())
    return Trace(Results(together.machine, tuple(measurements)), dict(unread))


def read_trace(path: Path) -> Trace:
    """Read a trace, plain or gzipped. Raises TraceError where it is none, or was recorded without shapes."""
    trace = _load(path)
    events = [event for event in trace["traceEvents"] if isinstance(event, dict) and event.get("ph") == "X"]
    for event in events:
        if not isinstance(event.get("name"), str) or not isinstance(event.get("dur"), int | float):
            raise TraceError(f"{path}: an event without name or duration: {json.dumps(event)[:80]}")
    times: dict[str, tuple[Case, dict[str, list[float]]]] = {}
    unread: Counter[str] = Counter()
    groups = _groups(trace)
    for name, args, seconds in _timed(events):
        found = _case(name, args, groups)
        if found is None:
            unread[name] += 1
            continue
        case, series = found
        times.setdefault(case.key, (case, {}))[1].setdefault(series, []).append(seconds)
    if not times and not any("Input Dims" in event.get("args", {}) for event in events):
        raise TraceError(f"{path}: recorded without shapes; profile with record_shapes=True")
    measurements = tuple(Measurement(case, 1, taken) for case, taken in times.values())
    rank = int(trace.get("distributedInfo", {}).get("rank", 0))
    return Trace(Results(_machine(trace), measurements), dict(unread), rank)


def _as_the_last_rank_saw(case: Case, per_rank: Sequence[Results], ranks: Sequence[int]) -> Measurement:
    """Occurrence by occurrence, the shortest time of any rank."""
    seen = {
        rank: measurement.seconds[case["op"]]
        for rank, results in zip(ranks, per_rank, strict=True)
        for measurement in results.measurements
        if measurement.case.key == case.key
    }
    if len({len(seconds) for seconds in seen.values()}) > 1:
        counts = ", ".join(f"rank {rank}: {len(seconds)}" for rank, seconds in seen.items())
        raise TraceError(
            f"{case['op']} of {case['size']} bytes: not seen equally often ({counts}); profile the same steps"
        )
    return Measurement(case, 1, {case["op"]: [min(each) for each in zip(*seen.values(), strict=True)]})


def _load(path: Path) -> dict[str, Any]:
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            trace = json.load(file)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{path}:{error.lineno}:{error.colno}: not a JSON trace: {error.msg}; is it cut off?"
        ) from None
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: not a JSON trace: {error}; is it cut off?") from None
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise TraceError(f"{path}: has no traceEvents; is it a trace of the PyTorch profiler?")
    return trace


def _timed(events: Sequence[Event]) -> Iterator[tuple[str, Event, float]]:
    """(operator or collective, its arguments, seconds): device kernels under their operator, else operators alone."""
    operators = {e["args"].get("External id"): e for e in events if e.get("cat") == "cpu_op" and "args" in e}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    by_operator: dict[Any, list[Event]] = defaultdict(list)
    for kernel in kernels:
        if "Collective name" in kernel.get("args", {}):
            yield kernel["args"]["Collective name"], kernel["args"], kernel["dur"] * 1e-6
        else:
            by_operator[kernel.get("args", {}).get("External id")].append(kernel)
    for external, launched in by_operator.items():
        operator = operators.get(external)
        name = operator["name"] if operator else launched[0]["name"]
        yield name, operator["args"] if operator else {}, sum(kernel["dur"] for kernel in launched) * 1e-6
    for event in events if not kernels else ():
        if event.get("cat") == "cpu_op" or event["name"].startswith("gloo:"):
            yield event["name"], event.get("args", {}), event["dur"] * 1e-6


def _case(name: str, args: Event, groups: Mapping[str, list[int]]) -> tuple[Case, str] | None:
    """The measurement's case and series, or None for what no cost model is calibrated on."""
    if "Collective name" in args or name.startswith("gloo:"):
        return _collective(name, args, groups)
    shapes = args.get("Input Dims")
    dtype = DTYPES.get(next(iter(args.get("Input type", ())), ""))
    if not shapes or dtype is None:
        return None
    product = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1}.get(name)
    if product is not None:
        return _gemm(shapes[product], shapes[product + 1], dtype), "gemm"
    if name.startswith("aten::_scaled_dot_product_") and len(shapes[0]) == 4:
        return _attention(name, args, dtype)
    if name in MEMORY_BOUND and shapes[0]:
        return _memory_bound(MEMORY_BOUND[name], shapes, args["Input type"])
    return None


def _gemm(a: Sequence[int], b: Sequence[int], dtype: str) -> Case:
    parameters = {"m": a[-2], "n": b[-1], "k": a[-1], "dtype": dtype}
    return Case("gemm", {**parameters, "batch": a[0]} if len(a) == 3 else parameters)


def _attention(name: str, args: Event, dtype: str) -> tuple[Case, str] | None:
    backward = name.endswith("_backward")
    q, k = args["Input Dims"][1:3] if backward else args["Input Dims"][:2]
    causal = "True" in args.get("Concrete Inputs", ())
    shape = {"batch": q[0], "heads": q[1], "kv_heads": k[1], "sequence": q[2], "head_dim": q[3]}
    if q[2] != k[2]:
        return None
    return Case(
        "attention", {**shape, "causal": causal, "dtype": dtype}
    ), "backward" if backward else "forward"


def _memory_bound(op: str, shapes: Sequence[Sequence[int]], types: Sequence[str]) -> tuple[Case, str] | None:
    """What the operator moves; None where it also casts or broadcasts, which is another operator."""
    operands = 2 if op in ("add", "copy") else 1
    if any(shape != shapes[0] for shape in shapes[:operands]) or len(set(types[:operands])) > 1:
        return None
    elements, dtype = prod(shapes[0]), DTYPES[types[0]]
    size = elements * DTYPE_BYTES[dtype]
    traffic = {"bytes_read": (2 if op == "add" else 1) * size, "bytes_written": size}
    return Case("memory_bound", {"op": op, "elements": elements, "dtype": dtype, **traffic}), op


def _collective(name: str, args: Event, groups: Mapping[str, list[int]]) -> tuple[Case, str] | None:
    op = COLLECTIVES.get(name.removeprefix("gloo:"))
    if "Collective name" in args:
        dtype, members = DTYPES.get(args.get("dtype", "")), args.get("Group size", 0)
        elements = max(args.get("In msg nelems", 0), args.get("Out msg nelems", 0))
        # The event's own list of ranks is cut short for large groups.
        ranks = groups.get(args.get("Process Group Name", ""), list(range(members)))
    else:
        dtype = DTYPES.get(next(iter(args.get("Input type", ())), ""))
        ranks = next(iter(groups.values()), [])
        elements = sum(prod(shape) for shape in args.get("Input Dims", ()))
        elements *= len(ranks) if op == "all_gather" else 1
    if op is None or dtype is None or not elements or len(ranks) < 2:
        return None
    size = round(elements * DTYPE_BYTES[dtype])
    return Case("collective", {"op": op, "size": size, "ranks": ranks, "dtype": dtype}), op


def _groups(trace: Mapping[str, Any]) -> dict[str, list[int]]:
    """Process group name → ranks."""
    config = trace.get("distributedInfo", {}).get("pg_config", ())
    return {entry["pg_name"]: list(entry["ranks"]) for entry in config if "ranks" in entry}


def _machine(trace: Mapping[str, Any]) -> dict[str, Any]:
    devices, distributed = trace.get("deviceProperties") or [], trace.get("distributedInfo", {})
    return {
        "device": "cuda" if devices else "cpu",
        "gpu": ", ".join(sorted({device["name"] for device in devices})),
        "backend": distributed.get("backend", ""),
        "num_ranks": distributed.get("world_size", 1),
    }
