"""How long does one collective take? Parameters: op, size in bytes (as `Collective`), ranks, dtype, maybe stagger.

With `stagger` the ranks enter one after the other, so many seconds apart, and the time counts from the last one: some
libraries are faster when all come at once than they ever are in training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device, torch_dtype
from simulator.calibration.microbenchmarks.groups import Groups
from simulator.workloads.operators import DTYPE_BYTES

if TYPE_CHECKING:
    import torch

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
MUTUAL = ("all_gather", "all_to_all")
"""Operations in which two ranks may send to each other: those that depend on who comes first."""


def cases(scope: Scope) -> list[Case]:
    sizes = scope.sizes()
    return [
        collective_case(op, size, range(ranks), scope.stagger * (op in MUTUAL))
        for op in OPS
        for ranks in scope.group_sizes()
        for size in sizes
    ]


def collective_case(op: str, size: int, ranks: range | list[int], stagger: float = 0.0) -> Case:
    """A case whose buffers hold whole elements on every rank: sizes are rounded to 4 bytes x ranks."""
    unit = 4 * len(ranks)
    rounded = max(unit, round(size / unit) * unit)
    late = {"stagger": stagger} if stagger else {}
    return Case("collective", {"op": op, "size": rounded, "ranks": list(ranks), "dtype": "fp32", **late})


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    perform = collective_call(case.parameters, device, groups.of(case["ranks"]))
    stagger, place = case.parameters.get("stagger", 0.0), case["ranks"].index(groups.rank)
    last = stagger * (len(case["ranks"]) - 1)

    def late() -> None:
        time.sleep(stagger * place)
        perform()

    call = late if stagger else perform
    return lambda times: {case["op"]: device.time_loop(call, times) - last}


def collective_call(
    parameters: Any, device: Device, group: torch.distributed.ProcessGroup
) -> Callable[[], Any]:
    """A call that performs the collective on buffers of its own."""
    import torch
    import torch.distributed as dist

    ranks, dtype = parameters["ranks"], torch_dtype(parameters["dtype"])
    whole = round(parameters["size"] / DTYPE_BYTES[parameters["dtype"]])
    big = torch.zeros(whole, dtype=dtype, device=device.torch_device)
    part = torch.zeros(whole // len(ranks), dtype=dtype, device=device.torch_device)
    # Newer torch renames these two and warns of the old names.
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    exchanged = torch.empty_like(big) if parameters["op"] == "all_to_all" else big
    root = ranks[0]
    return {
        "all_reduce": lambda: dist.all_reduce(big, group=group),
        "all_gather": lambda: gather(big, part, group=group),
        "reduce_scatter": lambda: scatter(part, big, group=group),
        "all_to_all": lambda: dist.all_to_all_single(exchanged, big, group=group),
        "broadcast": lambda: dist.broadcast(big, root, group=group),
        "reduce": lambda: dist.reduce(big, root, group=group),
    }[parameters["op"]]


register("collective", cases, prepare)
