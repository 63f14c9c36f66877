"""How much do computing and communicating slow each other down? Parameters: m, n, k, dtype, op, size, ranks.

Series: `compute_alone` (seconds of a run of equal GEMMs about as long as the collective),
`collective_alone`, and both again while the other runs.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.collective import collective_call, collective_case
from simulator.calibration.microbenchmarks.concurrent import in_parallel
from simulator.calibration.microbenchmarks.device import Device, torch_dtype
from simulator.calibration.microbenchmarks.groups import Groups

COVER = 0.8  # of the collective's time is filled with kernels, so that they have company throughout


def cases(scope: Scope) -> list[Case]:
    if scope.num_ranks < 2:
        return []
    shape = (4096, 4096, 4096, "bf16") if scope.device == "cuda" else (256, 256, 256, "fp32")
    kernel = dict(zip(("m", "n", "k", "dtype"), shape, strict=True))
    sizes = [size for size in scope.sizes() if size >= 1 << 20]
    ops = ("all_reduce",) if scope.quick else ("all_reduce", "all_gather", "all_to_all")
    return [
        Case("overlap", {**kernel, **_message(op, size, scope.num_ranks)})
        for op in ops
        for size in sizes[-2:]
    ]


def _message(op: str, size: int, num_ranks: int) -> dict[str, object]:
    case = collective_case(op, size, range(num_ranks))
    return {name: case[name] for name in ("op", "size", "ranks")}


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch

    dtype = torch_dtype(case["dtype"])
    a, b = (torch.randn(shape, device=device.torch_device).to(dtype) for shape in _shapes(case))
    communicate = collective_call({**case.parameters, "dtype": "fp32"}, device, groups.of(case["ranks"]))
    multiply = lambda: torch.mm(a, b)  # noqa: E731
    device.time_loop(multiply, 3)
    num_kernels = _kernels_that_fill(device.time_loop(communicate, 2), device.time_loop(multiply, 5))

    def compute() -> None:
        for _ in range(num_kernels):
            multiply()

    return lambda times: _alone_and_together(compute, communicate, device, times)


def _shapes(case: Case) -> tuple[tuple[int, int], tuple[int, int]]:
    return (case["m"], case["k"]), (case["k"], case["n"])


def _kernels_that_fill(collective: float, kernel: float) -> int:
    return max(1, round(COVER * collective / kernel))


def _alone_and_together(
    compute: Callable[[], object], communicate: Callable[[], object], device: Device, times: int
) -> dict[str, float]:
    alone = {
        "compute_alone": device.time_loop(compute, times),
        "collective_alone": device.time_loop(communicate, times),
    }
    calls = {"compute_overlapped": compute, "collective_overlapped": communicate}
    return {**alone, **in_parallel(calls, device, times)}


register("overlap", cases, prepare)
