"""How much of a model can stay unsharded in the memory that is left? (`plan.zero3`: fraction or unsharded auto)

What a GPU's memory holds besides everything shared out may go to gathered parameters that stay over a step (selective
unsharding: Tanaka et al. 2025, DeepCompile) or to whole state of a part of each layer (Jiang et al. 2022, OSDP). Both
come in levels, of which each takes more memory and saves more gathers than the one before. The highest that fits is
found by simulating levels, as interpolation between those known suggests; the fastest that fits is taken, which is the
lowest one where gathers were hidden anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from simulator.description.faults import DescriptionError
from simulator.engine.timeline import Timeline
from simulator.hardware.cluster import Cluster
from simulator.program.builder import Built
from simulator.program.setting import Setting
from simulator.program.sharding import gathered_bytes, keeping_order
from simulator.results.memory import MemoryReport, memory_report
from simulator.workloads.fully_sharded import FullySharded
from simulator.workloads.workload import Workload

GUESSES = 3
"""Levels tried by interpolation between the ends, before intervals are halved."""

Run = Callable[[Workload], tuple[Built, Timeline]]


@dataclass(frozen=True)
class Try:
    """A simulated level."""

    built: Built
    timeline: Timeline
    memory: MemoryReport

    @property
    def workload(self) -> Workload:
        return self.built.setting.workload

    def fits(self, limit: float | None) -> bool:
        """Whether every GPU and host holds it, and every GPU with no more than `limit` bytes."""
        return self.memory.fits and (limit is None or self.memory.peak_bytes <= limit)


@dataclass(frozen=True)
class Unsharding:
    """The level that was taken: its run, and `meta.unsharding` of the prediction."""

    taken: Try
    meta: dict[str, Any]


def unshard(cluster: Cluster, workload: Workload, setting: Setting, run: Run) -> Unsharding:
    """Find what `plan.zero3` leaves open; `run` simulates a workload, `setting` is that of the one as it stands.

    Without a level that fits the lowest is taken, which the prediction reports as not fitting. Raises DescriptionError
    where it is `plan.zero3.memory_limit` that nothing fits.
    """
    open_key, levels = _levels(setting)
    limit = workload.plan.zero3.memory_limit
    tries: dict[int, Try] = {}

    def attempt(level: int) -> Try:
        if level not in tries:
            built, timeline = run(_decided(workload, open_key, levels[level]))
            tries[level] = Try(built, timeline, memory_report(built, timeline))
        return tries[level]

    lowest = attempt(0)
    if lowest.fits(limit):
        _highest(attempt, len(levels) - 1, limit)
    elif lowest.memory.fits:
        message = f"needs {lowest.memory.peak_bytes / 1e9:.1f} GB with everything shared out"
        raise DescriptionError([workload.fault("plan.zero3.memory_limit", message)])
    fitting = [level for level in sorted(tries) if tries[level].fits(limit)] or [0]
    taken = min(fitting, key=lambda level: tries[level].timeline.step_seconds)
    capacity = min(group.node.gpu.memory.total for group in cluster.node_groups)
    meta = {
        "key": f"plan.zero3.{open_key}",
        "value": levels[taken],
        "limit_bytes": capacity if limit is None else min(limit, capacity),
        "level": taken,
        "highest": max(fitting),
        "levels": len(levels) - 1,
        "tried": len(tries),
    }
    return Unsharding(tries[taken], meta)


def _levels(setting: Setting) -> tuple[str, list[float]]:
    """(key, its values) from nothing that stays unsharded to everything: a block of the model, or a unit, at a time."""
    if setting.plan.zero3.undecided == "fraction":
        blocks = sum(layer.kind == "block" for layer in setting.workload.model.layers())
        steps = blocks or len(setting.workload.model.layers())
        return "fraction", [1.0 - step / steps for step in range(steps + 1)]
    budgets = {0.0}
    for contents in setting.content:
        for content in contents:
            order = keeping_order(setting, content.units, content.chunk == 0)
            sizes = [gathered_bytes(setting, content.units[position]) for position in order]
            budgets |= {total * setting.num_chunks for total in accumulate(sizes)}
    return "unsharded", sorted(budgets)


def _decided(workload: Workload, key: str, value: float) -> Workload:
    zero3: FullySharded = workload.plan.zero3.model_copy(update={key: value, "memory_limit": None})
    return workload.model_copy(update={"plan": workload.plan.model_copy(update={"zero3": zero3})})


def _highest(attempt: Callable[[int], Try], top: int, limit: float | None) -> None:
    """Try levels until the highest that fits and the next one are known; the lowest fits."""
    if attempt(top).fits(limit):
        return
    low, high = 0, top
    for count in range(top):
        if high - low <= 1:
            return
        middle = _between(attempt, low, high, limit) if count < GUESSES else (low + high) // 2
        if attempt(middle).fits(limit):
            low = middle
        else:
            high = middle


def _between(attempt: Callable[[int], Try], low: int, high: int, limit: float | None) -> int:
    """The level at which memory would be full if it grew evenly from one to the other."""
    below, above = attempt(low).memory, attempt(high).memory
    full = below.capacity_bytes if limit is None else min(limit, below.capacity_bytes)
    growth = (above.peak_bytes - below.peak_bytes) / (high - low)
    guess = low + int((full - below.peak_bytes) / growth) if growth > 0.0 else (low + high) // 2
    return min(max(guess, low + 1), high - 1)
