"""How long does a message between two ranks take? Parameters: size in bytes, ranks (two), pattern.

`ping_pong`: half the time there and back. `exchange`: both send to each other at once, receives posted first.
"""

from __future__ import annotations

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device
from simulator.calibration.microbenchmarks.groups import Groups


def cases(scope: Scope) -> list[Case]:
    if scope.num_ranks < 2:
        return []
    pairs = [(0, 1)] if scope.num_ranks == 2 else [(0, 1), (0, scope.num_ranks - 1)]
    return [
        Case("send_recv", {"pattern": pattern, "size": size, "ranks": list(pair)})
        for pattern in ("ping_pong", "exchange")
        for pair in pairs
        for size in scope.sizes()
    ]


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch

    group = groups.of(case["ranks"])
    first = case["ranks"][0] == groups.rank
    peer = case["ranks"][1 if first else 0]
    there = torch.zeros(case["size"], dtype=torch.uint8, device=device.torch_device)
    back = torch.zeros_like(there)
    if case["pattern"] == "exchange":
        return lambda times: {
            "exchange": device.time_loop(lambda: _exchange(there, back, peer, group), times)
        }
    return lambda times: {
        "ping_pong": device.time_loop(lambda: _ping_pong(there, back, peer, first, group), times) / 2
    }


def _ping_pong(there, back, peer, first, group) -> None:  # type: ignore[no-untyped-def]
    import torch.distributed as dist

    if first:
        dist.send(there, peer, group=group)
        dist.recv(back, peer, group=group)
    else:
        dist.recv(back, peer, group=group)
        dist.send(there, peer, group=group)


def _exchange(there, back, peer, group) -> None:  # type: ignore[no-untyped-def]
    import torch.distributed as dist

    both = [dist.P2POp(dist.irecv, back, peer, group=group), dist.P2POp(dist.isend, there, peer, group=group)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


register("send_recv", cases, prepare)
