"""How full does each GPU get, of what, and does it fit?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.costs.memory import host_state
from simulator.engine.memory import MemoryPeak
from simulator.results.interval import memory_factors

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.program.builder import Built

NARROW = 0.95
"""Of the capacity: of the runs of llm-foundry that need more (with their metrics on fp32 logits) three took 20 to 28 %
longer than the same models with a little more room (T00179, T00021, T00080), and seven did not."""

DYNAMIC = ("activations", "transient", "gathered parameters", "whole gradients")
"""What comes and goes during a step: the allocator leaves slack around it."""


@dataclass(frozen=True)
class ClassMemory:
    """The peak of each of `num_ranks` equal ranks (bytes), first reached at `time_s`; `by_kind` sums to it."""

    rank_class: str
    stage: int
    num_ranks: int
    peak_bytes: float
    capacity_bytes: float
    time_s: float
    by_kind: Mapping[str, float]

    @property
    def share(self) -> float:
        """Of the GPU's capacity; above 1 where it does not fit."""
        return self.peak_bytes / self.capacity_bytes


@dataclass(frozen=True)
class HostMemory:
    """What offloading keeps in the memory of one host, and what that holds (0 where it is not described)."""

    peak_bytes: float
    capacity_bytes: float

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes or not self.peak_bytes


@dataclass(frozen=True)
class MemoryReport:
    """Every rank class at its own peak; the properties speak of the fullest one."""

    classes: tuple[ClassMemory, ...]
    host: HostMemory = HostMemory(0.0, 0.0)
    factors: tuple[float, float] = (1.0, 1.0)
    """Ends of the interval around a peak, as multiples of it."""

    @property
    def fullest(self) -> ClassMemory:
        """The class with the largest share of its capacity, the first of equals."""
        return max(self.classes, key=lambda one: one.share)

    @property
    def peak_bytes(self) -> float:
        return self.fullest.peak_bytes

    @property
    def peak_low_bytes(self) -> float:
        return self.factors[0] * self.peak_bytes

    @property
    def peak_high_bytes(self) -> float:
        return self.factors[1] * self.peak_bytes

    @property
    def capacity_bytes(self) -> float:
        return self.fullest.capacity_bytes

    @property
    def by_kind(self) -> Mapping[str, float]:
        return self.fullest.by_kind

    @property
    def rank_class(self) -> str:
        return self.fullest.rank_class

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes and self.host.fits

    @property
    def may_not_fit(self) -> bool:
        """Whether it fits by less than predictions of memory are known to err."""
        return self.fits and self.peak_high_bytes > self.capacity_bytes

    @property
    def nearly_full(self) -> bool:
        """Whether it fits, but so narrowly that an allocator may have to clear its cache in every step."""
        return self.fits and self.peak_bytes > NARROW * self.capacity_bytes

    @property
    def shortfall_bytes(self) -> float:
        return max(0.0, self.peak_bytes - self.capacity_bytes)

    def by_stage(self) -> list[ClassMemory]:
        """The fullest class of each pipeline stage, by stage."""
        fullest: dict[int, ClassMemory] = {}
        for one in self.classes:
            if one.stage not in fullest or one.share > fullest[one.stage].share:
                fullest[one.stage] = one
        return [fullest[stage] for stage in sorted(fullest)]

    def to_dict(self) -> dict[str, Any]:
        """The `memory` object of `clustersim run --json`."""
        return {
            "peak_bytes": self.peak_bytes,
            "peak_low_bytes": self.peak_low_bytes,
            "peak_high_bytes": self.peak_high_bytes,
            "capacity_bytes": self.capacity_bytes,
            "fits": self.fits,
            "shortfall_bytes": self.shortfall_bytes,
            "by_kind": dict(self.by_kind),
            "rank_class": self.rank_class,
            "host": {"peak_bytes": self.host.peak_bytes, "capacity_bytes": self.host.capacity_bytes},
            "by_stage": [
                {
                    "stage": one.stage,
                    "peak_bytes": one.peak_bytes,
                    "capacity_bytes": one.capacity_bytes,
                    "by_kind": dict(one.by_kind),
                }
                for one in self.by_stage()
            ],
        }


def memory_report(built: Built, timeline: Timeline) -> MemoryReport:
    """The ledger's peaks with the allocator's slack, a share of what was allocated during the step."""
    topology = built.communicators.communicators.topology
    slack = built.setting.software.memory.fragmentation
    peaks = {peak.rank_class: peak for peak in timeline.memory}
    classes = []
    for rank_class, rank in enumerate(built.communicators.representatives):
        peak = peaks.get(rank_class, MemoryPeak(rank_class, 0.0, 0.0, {}))
        kinds = dict(peak.by_kind)
        dynamic = sum(amount for kind, amount in kinds.items() if kind in DYNAMIC)
        if slack * dynamic:
            kinds["fragmentation"] = slack * dynamic
        classes.append(
            ClassMemory(
                rank_class=built.program.rank_classes[rank_class],
                stage=built.stage_of_class[rank_class],
                num_ranks=built.program.members[rank_class],
                peak_bytes=sum(kinds.values()),
                capacity_bytes=topology.hardware[int(topology.gpu_hardware[rank])].memory.total,
                time_s=peak.time,
                by_kind=kinds,
            )
        )
    return MemoryReport(tuple(classes), _host_memory(built, timeline), memory_factors())


def _host_memory(built: Built, timeline: Timeline) -> HostMemory:
    """The fullest host, if its GPUs are all of the fullest stage: state that rests there, activations that wait."""
    topology = built.communicators.communicators.topology
    node = topology.nodes[0]
    waiting = _waiting_bytes(built, timeline)
    state = []
    for stage, setting in enumerate(built.settings):
        layers = [placed.layer for content in setting.content[stage] for placed in content.layers]
        state.append(host_state(layers, setting.workload, setting.shard, setting.grid.world))
    capacity = node.cpu.memory if node.cpu is not None else 0.0
    return HostMemory((max(state) + waiting) * node.num_gpus, capacity)


def _waiting_bytes(built: Built, timeline: Timeline) -> float:
    """Most bytes of activations of one rank that are in host memory at a time."""
    most = 0.0
    if not built.setting.offloads_activations:
        return most
    for rank_class in range(len(built.program.members)):
        changes: list[tuple[float, float]] = []
        for task, began in zip(built.program.tasks, timeline.start.tolist(), strict=True):
            if task.label not in ("evict activations", "fetch activations"):
                continue
            mine = [c.amount for c in (*task.at_start, *task.at_end) if c.rank_class == rank_class]
            changes += [(began, -amount) for amount in mine]
        held = 0.0
        for _, amount in sorted(changes):
            held += amount
            most = max(most, held)
    return most
