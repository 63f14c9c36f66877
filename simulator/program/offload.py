"""What leaves the GPU for its host or a disk during a step, when it comes back, and what the host computes itself.

Optimizer state on the host is updated there (ZeRO-Offload: gradients go out, parameters come back) or brought in for
the update and sent out again; on disk it passes through host memory both ways (ZeRO-Infinity). Sharded parameters that
rest on the host come in before their gather. Kept activations go out after forward and come in ahead of backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.costs.memory import MOMENT_BYTES, MOMENTS
from simulator.program import host_copies
from simulator.program.chains import Chain
from simulator.program.sharding import owned_parameters
from simulator.program.units import Placed, Unit
from simulator.workloads.operators import DTYPE_BYTES

if TYPE_CHECKING:
    from simulator.program.communicators import Request
    from simulator.program.pricing import ClassPricing
    from simulator.program.rank_builder import RankBuilder
    from simulator.program.setting import Setting


UpdateChain = Callable[[Sequence[Placed], float], Chain]
"""The update of so many parameters of some layers on the GPU."""


@dataclass(slots=True)
class HostTraffic:
    """The copies of one rank class; out, in, disk and CPU are lanes of their own."""

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    evicted: dict[tuple[object, ...], int] = field(default_factory=dict)  # what went out → its copy

    def copy(
        self, op: str, size: float, label: str, lane: str, deps: Iterable[int], micro_batch: int = -1
    ) -> int | None:
        transfer = self.pricing.communicators.transfer(host_copies.AXIS, op, size, self.pricing.rank_class)
        return self.rank.communicate(transfer, "offload", label, lane, deps, micro_batch)

    def bring(
        self, size: float, label: str, deps: Sequence[int], tier: str, micro_batch: int = -1
    ) -> list[int]:
        """From its tier to the GPU; returns what to wait for."""
        needs = list(deps)
        if tier == "nvme":
            needs = _joined(self.copy("from_disk", size, label, "disk-in", needs, micro_batch), needs)
        return _joined(self.copy("from_host", size, label, "copy-in", needs, micro_batch), needs)

    def send(
        self, size: float, label: str, deps: Sequence[int], tier: str, micro_batch: int = -1
    ) -> list[int]:
        """From the GPU to its tier; returns what to wait for."""
        needs = _joined(self.copy("to_host", size, label, "copy-out", deps, micro_batch), list(deps))
        if tier == "nvme":
            needs = _joined(self.copy("to_disk", size, label, "disk-out", needs, micro_batch), needs)
        return needs

    # --- parameters and gradients ------------------------------------------------------------------------------------

    def fetch_shard(self, unit: Unit, deps: list[int], micro_batch: int) -> list[int]:
        """Before a gather: this rank's part of the unit's parameters comes from where it rests."""
        tier = self.setting.plan.offload.parameters
        if tier == "none":
            return deps
        size = owned_parameters(self.setting, unit.layers) * self.setting.parameter_size
        return self.bring(size, "fetch parameters", deps, tier, micro_batch)

    def evict_gradients(self, unit: Unit, deps: Sequence[int], micro_batch: int) -> None:
        """After the last reduction: this rank's part of the gradients goes to the CPU that updates it."""
        if self.setting.plan.offload.optimizer != "cpu":
            return
        size = owned_parameters(self.setting, unit.layers) * self.setting.reduction_size
        task = self.copy("to_host", size, "evict gradients", "copy-out", deps, micro_batch)
        if task is not None:
            self.evicted["gradients", id(unit)] = task

    # --- activations -------------------------------------------------------------------------------------------------

    def evict_activations(
        self, key: tuple[int, ...], placed: Sequence[Placed], after: int, micro_batch: int
    ) -> None:
        """After forward of a unit: its kept tensors go out and leave the GPU when they have gone."""
        size = sum(p.layer.offloaded_bytes(p.shard) for p in placed)
        task = self.copy("to_host", size, "evict activations", "copy-out", [after], micro_batch)
        if task is not None:
            self.evicted["activations", *key] = task
            draft, rank_class = self.setting.draft, self.pricing.rank_class
            draft.memory(task, rank_class, "activations", -size, at_end=True)

    def fetch_activations(
        self, key: tuple[int, ...], placed: Sequence[Placed], history: Sequence[int], micro_batch: int
    ) -> list[int]:
        """Before backward of a unit: they come in again, at most `prefetch` units early."""
        out = self.evicted.pop(("activations", *key), None)
        if out is None:
            return []
        ahead = self.setting.plan.offload.prefetch + 1
        allowed = list(history[-ahead:][:1]) if len(history) >= ahead else []
        size = sum(p.layer.offloaded_bytes(p.shard) for p in placed)
        task = self.copy("from_host", size, "fetch activations", "copy-in", [out, *allowed], micro_batch)
        if task is None:
            return []
        self.setting.draft.memory(task, self.pricing.rank_class, "activations", size)
        return [task]

    # --- the update --------------------------------------------------------------------------------------------------

    def update(self, units: Sequence[Unit], norm: list[int], chain: UpdateChain) -> list[int]:
        """The update of every unit where its state is; returns what the gathers of parameters wait for."""
        done = []
        for unit in units:
            count = owned_parameters(self.setting, unit.layers)
            if count and self.setting.plan.offload.optimizer == "cpu":
                done += self._update_on_cpu(unit, count, norm)
            elif count:
                done += self._update_on_gpu(unit, count, norm, chain)
        return done

    def _update_on_cpu(self, unit: Unit, count: float, norm: list[int]) -> list[int]:
        setting, tier = self.setting, self.setting.plan.offload.optimizer_tier
        gradients = self.evicted.get(("gradients", id(unit)))
        needs = norm if gradients is None else [*norm, gradients]
        states = count * state_size(setting)
        if tier == "nvme":
            needs = _joined(self.copy("from_disk", states, "fetch state", "disk-in", norm), needs) + needs
        moved = 2 * states + count * (setting.reduction_size + setting.parameter_size)
        updated = _joined(self.copy("cpu_adam", moved, "update", "cpu", needs), needs)
        if tier == "nvme":
            self.copy("to_disk", states, "evict state", "disk-out", updated)
        if setting.plan.offload.parameters != "none":
            return updated  # which rest on the host too
        size = count * DTYPE_BYTES[setting.workload.parameter_dtype]
        return _joined(self.copy("from_host", size, "fetch parameters", "copy-in", updated), updated)

    def _update_on_gpu(self, unit: Unit, count: float, norm: list[int], chain: UpdateChain) -> list[int]:
        setting, rank_class = self.setting, self.pricing.rank_class
        size, tier = count * state_size(setting), setting.plan.offload.optimizer_tier
        came = self.bring(size, "fetch state", norm, tier)
        ran = self.rank.run(chain(unit.layers, count), came, name="update")
        updated = came if ran is None else [ran[1]]
        gone = self.copy("to_host", size, "evict state", "copy-out", updated)
        if gone is not None:
            setting.draft.memory(came[-1], rank_class, "transient", size)
            setting.draft.memory(gone, rank_class, "transient", -size, at_end=True)
            if tier == "nvme":
                self.copy("to_disk", size, "evict state", "disk-out", [gone])
        return updated


def offload_requests(setting: Setting) -> list[Request]:
    """What of the host a step uses."""
    plan, used = setting.plan.offload, set()
    if plan.activations:
        used |= {"to_host", "from_host"}
    if plan.parameters != "none":
        used |= {"from_host"} | ({"from_disk"} if plan.parameters == "nvme" else set())
    if plan.optimizer != "none":
        used |= {"to_host", "from_host"} | ({"cpu_adam"} if plan.optimizer == "cpu" else set())
        used |= {"from_disk", "to_disk"} if plan.optimizer_tier == "nvme" else set()
    return [(host_copies.AXIS, op, 1.0) for op in sorted(used)]


def state_size(setting: Setting) -> float:
    """Bytes of optimizer state per parameter."""
    moments = MOMENTS[setting.plan.optimizer] * MOMENT_BYTES[setting.plan.optimizer_dtype]
    return moments + (4.0 if setting.workload.master_weights else 0.0)


def _joined(task: int | None, otherwise: Sequence[int]) -> list[int]:
    return list(otherwise) if task is None else [task]
