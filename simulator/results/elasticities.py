"""How do kernels and collectives depend on the rates of the hardware? As their own cost models say.

A large GEMM follows the GPU's peak, a small one hardly anything; an all-reduce inside a node follows NVLink less than
its bytes say. Under a power limit the clock of matrix products also depends on how much of the time they are at work,
so that they get slower where everything else gets faster. Each is priced again on slightly faster hardware.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import log, log1p
from typing import TYPE_CHECKING

from simulator.costs.collectives import collective_seconds
from simulator.program.chains import Latency, Transfer
from simulator.results.utilization import name_of
from simulator.workloads.operators import Collective

if TYPE_CHECKING:
    from simulator.costs.collectives import GroupShape
    from simulator.hardware.gpu import GPU
    from simulator.program.builder import Built
    from simulator.program.pricing import ClassPricing
    from simulator.program.program import Draws, Phase
    from simulator.workloads.operators import Kernel

SLIGHTLY = 1e-4

Shares = Mapping[str, float]
"""Parts of some seconds that fall as 1 / rate of each resource (below zero: rise); the rest goes with other times."""

LINKS = {"nvlink": "scale_up_bandwidth", "nic": "nic_bandwidth"}
"""What the shape of a group calls the rates of links."""


@dataclass(frozen=True)
class Elasticities:
    """-d(log seconds) / d(log rate), by rate, of what the phases of a program are due to."""

    built: Built
    _transfers: dict[tuple[str, str, float], tuple[Shares, Shares]] = field(default_factory=dict)
    _kernels: dict[tuple[int, Kernel], Shares] = field(default_factory=dict)
    _faster: dict[tuple[int, str], ClassPricing] = field(default_factory=dict)

    def of(self, what: Hashable, phase: Phase) -> tuple[Shares, str]:
        """(shares of the seconds of `phase` that are due to `what`, the name of the rest)."""
        if isinstance(what, Latency):
            return self._transfer(what.transfer)[0], "latency"
        if isinstance(what, Transfer):
            return self._transfer(what)[1], "latency"
        resources = self.built.program.resources
        rank_class = next(number for number, _ in phase.draws if resources[number].kind == "gpu")
        return self._kernel(what, rank_class), "kernel_latency"  # type: ignore[arg-type]

    # --- kernels -----------------------------------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel, rank_class: int) -> Shares:
        key = (rank_class, kernel)
        if key not in self._kernels:
            now = self.built.pricings[rank_class].kernel_seconds(kernel)
            faster = {name: self._pricing(rank_class, name) for name in ("tensor_core", "hbm", *LINKS)}
            self._kernels[key] = {
                name: _elasticity(now, pricing.kernel_seconds(kernel)) for name, pricing in faster.items()
            }
        return self._kernels[key]

    def _pricing(self, rank_class: int, name: str) -> ClassPricing:
        """The class's pricing where the rate called `name` is slightly higher."""
        key = (rank_class, name)
        if key not in self._faster:
            self._faster[key] = self._find_pricing(*key)
        return self._faster[key]

    def _find_pricing(self, rank_class: int, name: str) -> ClassPricing:
        built = self.built
        pricing, stage = built.pricings[rank_class], built.stage_of_class[rank_class]
        setting = built.settings[stage]
        operations = list(setting.operations(stage, setting.packs_of(rank_class)))
        gpus = tuple([(_faster(gpu, name), calibration) for gpu, calibration in pricing.gpus])
        changed = replace(pricing, gpus=gpus, clocks=(1.0,) * len(gpus), known={})
        products, streaming, waiting = changed.load(operations)
        for operation, count in operations:
            what = operation.what
            if name in LINKS and isinstance(what, Collective) and not operation.asynchronous:
                waiting -= count * SLIGHTLY * self._saved(pricing.transfer(what), name)
        return changed.at_load(products, streaming, waiting, pricing.limited)

    # --- transfers ---------------------------------------------------------------------------------------------------

    def _saved(self, transfer: Transfer | None, name: str) -> float:
        """Seconds of the transfer that go with the rate."""
        if transfer is None:
            return 0.0
        latency, work = (shares.get(name, 0.0) for shares in self._transfer(transfer))
        return latency * transfer.latency + work * (transfer.seconds - transfer.latency)

    def _transfer(self, transfer: Transfer) -> tuple[Shares, Shares]:
        """Of its latency, and of its work."""
        key = (transfer.groups, transfer.op, transfer.size)
        if key not in self._transfers:
            self._transfers[key] = self._find_transfer(transfer)
        return self._transfers[key]

    def _find_transfer(self, transfer: Transfer) -> tuple[Shares, Shares]:
        """By the closed form for the slowest shape of group, as far as this is limited by the same links."""
        name = self._limit(transfer.draws)
        model = self.built.communicators.communicators
        shape = max(model.shapes(transfer.groups)[0], key=lambda shape: sum(self._parts(transfer, shape)))
        now, shares = self._parts(transfer, shape), []
        inside = "nvlink" if name == "host_link" else name
        if inside not in LINKS:
            return {}, {name: 1.0}
        rate = LINKS[inside]
        faster = self._parts(transfer, replace(shape, **{rate: getattr(shape, rate) * (1.0 + SLIGHTLY)}))
        shares = [_elasticity(*pair) for pair in zip(now, faster, strict=True)]
        return {name: shares[0]}, {name: shares[1]}

    def _parts(self, transfer: Transfer, shape: GroupShape) -> tuple[float, float]:
        """(seconds of latency, seconds of work) by the closed form."""
        cost = self.built.communicators.communicators.cost_model(transfer.op, transfer.size, shape)
        return cost.latency, collective_seconds(cost, shape) - cost.latency

    def _limit(self, draws: Draws) -> str:
        """The kind of link that is busy longest."""
        resources = self.built.program.resources
        longest = max(draws, key=lambda draw: draw[1] / resources[draw[0]].capacity, default=None)
        return "cap" if longest is None else name_of(resources[longest[0]].kind)


def _faster(gpu: GPU, name: str) -> GPU:
    """With slightly higher peaks, or slightly faster memory."""
    if name == "tensor_core":
        peaks = {dtype: peak * (1.0 + SLIGHTLY) for dtype, peak in gpu.dense_peak.items()}
        return gpu.model_copy(update={"dense_peak": peaks})
    if name == "hbm":
        bandwidth = gpu.memory.bandwidth * (1.0 + SLIGHTLY)
        return gpu.model_copy(update={"memory": gpu.memory.model_copy(update={"bandwidth": bandwidth})})
    return gpu


def _elasticity(now: float, faster: float) -> float:
    return -log(faster / now) / log1p(SLIGHTLY) if now > 0.0 and faster > 0.0 else 0.0
