"""How does the time of a kernel or of a collective depend on the rates of the hardware? By its own cost model.

A large GEMM follows the GPU's peak, a small one hardly anything; an all-reduce inside a node follows NVLink less than
its bytes say. So the critical path is divided by elasticities, d(log seconds) / d(log rate), found by pricing each
operation again on slightly faster hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, Any

from simulator.costs.kernels import KernelCalibration, calibration_for, chip_of, kernel_seconds
from simulator.costs.power import rested
from simulator.workloads.operators import Collective

if TYPE_CHECKING:
    from simulator.costs.kernels import Chip
    from simulator.program.builder import Built
    from simulator.program.program import Phase
    from simulator.workloads.layers import Operation
    from simulator.workloads.operators import Kernel

SLIGHTLY = 1e-4

Shares = Mapping[str, float]
"""Parts of a phase's seconds that fall as 1 / rate of each resource; what is missing to 1 does not depend on any."""


def elasticities(built: Built) -> Callable[[Phase], tuple[Shares, str] | None]:
    """For a phase: (its shares, what the rest is called); None for what no layer issued."""
    operations: dict[str, list[Any]] = {}
    for operation in _operations(built):
        known = operations.setdefault(operation.label, [])
        if operation.what not in known:
            known.append(operation.what)
    found: dict[str, tuple[Shares, str]] = {}

    def of(phase: Phase) -> tuple[Shares, str] | None:
        if phase.label not in operations or phase.kind in ("dp", "pp", "offload", "optimizer", "launch"):
            return None
        if phase.label not in found:
            shares = [_shares(what, built) for what in operations[phase.label]]
            names = dict.fromkeys(name for one in shares for name in one)
            mean = {name: sum(one.get(name, 0.0) for one in shares) / len(shares) for name in names}
            is_kernel = not isinstance(operations[phase.label][0], Collective)
            found[phase.label] = mean, "kernel_latency" if is_kernel else "latency"
        return found[phase.label]

    return of


def _operations(built: Built) -> Iterator[Operation]:
    setting = built.setting
    placed = {
        (id(one.layer), id(one.shard)): one
        for pack in setting.distinct_packs
        for stage in setting.content_of(pack)
        for chunk in stage
        for one in chunk.layers
    }
    for one in placed.values():
        yield from one.layer.forward(one.shard)
        yield from one.layer.recompute(one.shard)
        yield from one.layer.backward(one.shard)


def _shares(what: Kernel | Collective, built: Built) -> Shares:
    if isinstance(what, Collective):
        return _of_collective(what, built)
    topology = built.communicators.communicators.topology
    prices = [_of_kernel(what, chip_of(gpu), rested(calibration_for(gpu))) for gpu in topology.hardware]
    return max(prices)[1]  # the slowest kind of GPU sets the pace


def _of_kernel(kernel: Kernel, chip: Chip, calibration: KernelCalibration) -> tuple[float, Shares]:
    """(seconds, shares)."""
    now = kernel_seconds(kernel, chip, calibration)
    faster_math = replace(chip, peaks=tuple((name, rate * (1 + SLIGHTLY)) for name, rate in chip.peaks))
    faster_memory = replace(chip, bandwidth=chip.bandwidth * (1 + SLIGHTLY))
    return now, {
        "tensor_core": _elasticity(now, kernel_seconds(kernel, faster_math, calibration)),
        "hbm": _elasticity(now, kernel_seconds(kernel, faster_memory, calibration)),
    }


def _of_collective(collective: Collective, built: Built) -> Shares:
    """By the closed form for the group's shape, of the slowest shape."""
    from simulator.costs.collectives import collective_seconds

    communicators = built.communicators.communicators
    if communicators.grid.size(collective.axis) < 2:
        return {}
    slowest, shares = 0.0, {}
    for shape in communicators.shapes(collective.axis)[0]:
        cost = communicators.cost_model(collective.op, collective.size, shape)
        now = collective_seconds(cost, shape)
        if now > slowest:
            slowest = now
            for name, key in (("nvlink", "scale_up_bandwidth"), ("nic", "nic_bandwidth")):
                faster = replace(shape, **{key: getattr(shape, key) * (1 + SLIGHTLY)})
                again = communicators.cost_model(collective.op, collective.size, faster)
                shares[name] = _elasticity(now, collective_seconds(again, faster))
    return shares


def _elasticity(now: float, faster: float) -> float:
    return max(0.0, -log(faster / now) / log(1 + SLIGHTLY)) if now > 0.0 and faster > 0.0 else 0.0
