"""How fast are copies between host and device? Parameters: direction, size in bytes, pinned.

Without a GPU only copies within host memory exist.
"""

from __future__ import annotations

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device
from simulator.calibration.microbenchmarks.groups import Groups


def cases(scope: Scope) -> list[Case]:
    if scope.device == "cpu":
        directions = [("host_to_host", False)]
    else:
        directions = [(d, pinned) for d in ("host_to_device", "device_to_host") for pinned in (True, False)]
        directions.append(("device_to_device", False))
    return [
        Case("copies", {"direction": direction, "size": size, "pinned": pinned})
        for direction, pinned in directions
        for size in scope.sizes()
    ]


def prepare(case: Case, device: Device, groups: Groups) -> Trial:

    begin, _, end = case["direction"].partition("_to_")
    source = _buffer(begin, case, device)
    target = _buffer(end, case, device)
    # Events time the copy on its stream; an unpinned copy blocks the host, which they include as well.
    return lambda times: {"copy": device.time_loop(lambda: target.copy_(source, non_blocking=True), times)}


def _buffer(place: str, case: Case, device: Device):  # type: ignore[no-untyped-def]
    import torch

    if place == "device":
        return torch.zeros(case["size"], dtype=torch.uint8, device=device.torch_device)
    return torch.zeros(case["size"], dtype=torch.uint8, pin_memory=case["pinned"])


register("copies", cases, prepare)
