"""How long do collectives of several groups take at the same time? Parameters: parts, each as a `collective` case.

All parts start together and each is repeated equally often; a series per part gives its mean time, so that a
part which ends early shows what the others gained. A rank may be in several parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.collective import collective_call, collective_case
from simulator.calibration.microbenchmarks.device import Device
from simulator.calibration.microbenchmarks.groups import Groups


def cases(scope: Scope) -> list[Case]:
    n = scope.num_ranks
    if n < 2:
        return []
    layouts = [[list(range(n)), list(range(n))]]  # two groups that share every rank
    if n >= 4 and n % 2 == 0:
        layouts.append([list(range(n // 2)), list(range(n // 2, n))])  # halves
        layouts.append([list(range(0, n, 2)), list(range(1, n, 2))])  # interleaved
    sizes = [size for size in scope.sizes() if size >= 256 << 10]
    return [
        concurrent_case([(op, size, ranks) for ranks in layout])
        for op in ("all_reduce", "all_gather")
        for layout in layouts
        for size in sizes
    ]


def concurrent_case(parts: list[tuple[str, int, list[int]]]) -> Case:
    """Parts as (op, size, ranks); equal groups are told apart by their number."""
    return Case("concurrent", {"parts": [dict(collective_case(*part).parameters) for part in parts]})


def series_name(number: int, part: Mapping[str, Any]) -> str:
    """Under which name the part's times are stored."""
    return f"{number}:{part['op']}"


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    mine = {
        series_name(number, part): collective_call(part, device, groups.of(part["ranks"], copy=number))
        for number, part in enumerate(case["parts"])
        if groups.rank in part["ranks"]
    }
    return lambda times: in_parallel(mine, device, times)


def in_parallel(calls: Mapping[str, Callable[[], object]], device: Device, times: int) -> dict[str, float]:
    """Seconds for each of `times` runs of every call, all started together, each on its own thread and stream."""
    if len(calls) < 2:
        return {name: device.time_loop(call, times) for name, call in calls.items()}
    taken: dict[str, float] = {}
    ready = threading.Barrier(len(calls))

    def work(name: str, call: Callable[[], object]) -> None:
        with device.own_stream():
            ready.wait()
            taken[name] = device.time_loop(call, times)

    threads = [threading.Thread(target=work, args=item) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


register("concurrent", cases, prepare)
