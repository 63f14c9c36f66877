"""How long does one optimizer step take? Parameters: name, implementation, elements (in `tensors` equal tensors)."""

from __future__ import annotations

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device
from simulator.calibration.microbenchmarks.groups import Groups


def cases(scope: Scope) -> list[Case]:
    exponents = (20, 23, 26, 28) if scope.device == "cuda" else (14, 17, 20, 22)
    return [
        Case(
            "optimizer",
            {
                "name": "adamw",
                "implementation": implementation,
                "elements": 1 << exponent,
                "tensors": tensors,
            },
        )
        for implementation in ("fused", "foreach")
        for tensors in (1, 64)
        for exponent in (exponents[:2] if scope.quick else exponents)
    ]


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch

    where, each = device.torch_device, case["elements"] // case["tensors"]
    parameters = [torch.nn.Parameter(torch.randn(each, device=where)) for _ in range(case["tensors"])]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    fused = case["implementation"] == "fused"
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=fused, foreach=not fused)
    return lambda times: {"step": device.time_loop(optimizer.step, times)}


register("optimizer", cases, prepare)
