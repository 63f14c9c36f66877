"""How long do operators take that only move memory? Parameters: op, elements, dtype, bytes_read, bytes_written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device, torch_dtype
from simulator.calibration.microbenchmarks.groups import Groups
from simulator.workloads.operators import DTYPE_BYTES

if TYPE_CHECKING:
    import torch

WIDTH = 4096  # elements per row for operators that work on rows
# op → (elements read, elements written) per element
TRAFFIC = {
    "copy": (1, 1),
    "add": (2, 1),
    "gelu": (1, 1),
    "dropout": (1, 1),
    "layer_norm": (1, 1),
    "rms_norm": (1, 1),
    "softmax": (1, 1),
}


def cases(scope: Scope) -> list[Case]:
    top, dtype = (28, "bf16") if scope.device == "cuda" else (23, "fp32")
    exponents = range(14, top + 1, 7 if scope.quick else 2)
    ops = ("copy", "layer_norm") if scope.quick else tuple(TRAFFIC)
    return [_case(op, 1 << exponent, dtype) for op in ops for exponent in exponents]


def _case(op: str, elements: int, dtype: str) -> Case:
    read, written = TRAFFIC[op]
    size = DTYPE_BYTES[dtype] * elements
    return Case(
        "memory_bound",
        {
            "op": op,
            "elements": elements,
            "dtype": dtype,
            "bytes_read": read * size,
            "bytes_written": written * size,
        },
    )


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch

    rows = max(1, case["elements"] // WIDTH)
    shape = (rows, case["elements"] // rows)
    x = torch.randn(shape, device=device.torch_device).to(torch_dtype(case["dtype"]))
    operation = _operation(case["op"], x)

    def trial(times: int) -> dict[str, float]:
        with torch.no_grad():
            return {case["op"]: device.time_loop(operation, times)}

    return trial


def _operation(op: str, x: torch.Tensor) -> Callable[[], object]:
    import torch
    from torch.nn import functional

    y = torch.zeros_like(x)
    width = (x.shape[-1],)
    weight = torch.ones(width, device=x.device, dtype=x.dtype)
    return {
        "copy": lambda: y.copy_(x),
        "add": lambda: torch.add(x, y, out=y),
        "gelu": lambda: functional.gelu(x, approximate="tanh"),
        "dropout": lambda: functional.dropout(x, 0.1),
        "layer_norm": lambda: functional.layer_norm(x, width, weight, weight),
        "rms_norm": lambda: functional.rms_norm(x, width, weight),
        "softmax": lambda: torch.softmax(x, dim=-1),
    }[op]


register("memory_bound", cases, prepare)
