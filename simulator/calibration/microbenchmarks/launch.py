"""How long is the host busy per kernel it launches? Parameters: op, the smallest of its kind, so that nothing hides it.

`host` is the time until the call returns (on CUDA the kernels queue up behind it), `device` the time per
kernel that the device itself needs when they come back to back.
"""

from __future__ import annotations

import time

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device
from simulator.calibration.microbenchmarks.groups import Groups

OPS = ("add", "linear", "layer_norm")


def cases(scope: Scope) -> list[Case]:
    return [Case("launch", {"op": op}) for op in OPS]


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch
    from torch.nn import functional

    x = torch.ones(16, 16, device=device.torch_device)
    operation = {
        "add": lambda: x.add_(0),
        "linear": lambda: functional.linear(x, x),
        "layer_norm": lambda: functional.layer_norm(x, (16,)),
    }[case["op"]]

    def trial(times: int) -> dict[str, float]:
        device.synchronize()
        with torch.no_grad():
            begin = time.perf_counter()
            for _ in range(times):
                operation()
            host = (time.perf_counter() - begin) / times
            return {"host": host, "device": device.time_loop(operation, times)}

    return trial


register("launch", cases, prepare)
