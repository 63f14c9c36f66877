"""What a user gets: step time and rates, where the time goes, utilisation, memory, energy and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from simulator.engine.timeline import Timeline
    from simulator.program.builder import Built


@dataclass(frozen=True)
class MemoryReport:
    """Bytes on the fullest rank class at its peak, and whether they fit; `by_kind` sums to `peak_bytes`."""

    peak_bytes: float
    capacity_bytes: float
    by_kind: Mapping[str, float]
    rank_class: str
    per_class: Mapping[str, float] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes

    @property
    def shortfall_bytes(self) -> float:
        return max(0.0, self.peak_bytes - self.capacity_bytes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "peak_bytes": self.peak_bytes,
            "capacity_bytes": self.capacity_bytes,
            "fits": self.fits,
            "shortfall_bytes": self.shortfall_bytes,
            "by_kind": dict(self.by_kind),
            "rank_class": self.rank_class,
        }


@dataclass(frozen=True)
class Prediction:
    """One workload on one cluster. Times in seconds, sizes in bytes, fractions in [0, 1]."""

    step_time_s: float
    step_time_low_s: float | None
    step_time_high_s: float | None
    gpus: int
    samples_per_s: float
    tokens_per_s: float | None
    tflops_per_gpu: float
    mfu: float
    hfu: float
    breakdown_s: Mapping[str, float]
    utilization: Mapping[str, float]
    memory: MemoryReport
    energy_j: float | None
    power_w: float | None
    cost_usd: float | None
    meta: Mapping[str, Any]
    run: Timeline = field(repr=False, compare=False)
    built: Built = field(repr=False, compare=False)

    @property
    def timeline(self) -> pd.DataFrame:
        """One row per phase of every task: kind, label, lane, rank_class, micro_batch, start, end, seconds."""
        return self.run.to_frame()

    @property
    def critical_path(self) -> list[dict[str, Any]]:
        """Kinds and seconds along the chain of tasks that determines the step, neighbours of one kind joined."""
        joined: list[dict[str, Any]] = []
        for step in self.run.critical_path(self.built.program):
            if joined and joined[-1]["kind"] == step.kind:
                joined[-1]["seconds"] += step.seconds
            else:
                joined.append({"kind": step.kind, "seconds": step.seconds})
        return joined

    def plot(self) -> Figure:
        """The timeline as a picture: one row per lane, coloured by kind."""
        from simulator.report.timeline_plot import timeline_figure

        return timeline_figure(self)

    def to_dict(self) -> dict[str, Any]:
        """The object of `clustersim run --json` (design, section 7)."""
        rates: dict[str, Any] = {"samples_per_s": self.samples_per_s}
        if self.tokens_per_s is not None:
            rates |= {"tokens_per_s": self.tokens_per_s, "tokens_per_s_per_gpu": self.tokens_per_s / self.gpus}
        else:
            rates |= {"samples_per_s_per_gpu": self.samples_per_s / self.gpus}
        return {
            "step_time_s": self.step_time_s,
            "step_time_low_s": self.step_time_low_s,
            "step_time_high_s": self.step_time_high_s,
            **rates,
            "tflops_per_gpu": self.tflops_per_gpu,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "gpus": self.gpus,
            "breakdown_s": dict(self.breakdown_s),
            "utilization": dict(self.utilization),
            "memory": self.memory.to_dict(),
            "energy_j": self.energy_j,
            "power_w": self.power_w,
            "cost_usd": self.cost_usd,
            "critical_path": self.critical_path,
            "sensitivity": {},
            "meta": dict(self.meta),
        }
