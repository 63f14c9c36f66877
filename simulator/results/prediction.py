"""What a user gets: step time and rates, where the time goes, utilisation, memory, energy and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from simulator.results.memory import MemoryReport

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from simulator.engine.timeline import Timeline
    from simulator.hardware.cluster import Cluster
    from simulator.program.builder import Built
    from simulator.results.origins import Origin
    from simulator.results.remedies import Remedy
    from simulator.workloads.workload import Workload

NEARLY_FULL = (
    "memory: within 5 % of what the GPU has; a caching allocator that runs out frees and maps memory in every step, "
    "which the time leaves out (some published runs with so little room lost 20 to 28 %)"
)


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
    cluster: Cluster = field(repr=False, compare=False)
    run: Timeline = field(repr=False, compare=False)
    built: Built = field(repr=False, compare=False)

    def __str__(self) -> str:
        """The table of `clustersim run`."""
        from simulator.report.text import plain

        return plain(self)

    @property
    def timeline(self) -> pd.DataFrame:
        """One row per phase of every task: kind, label, lane, rank_class, micro_batch, start, end, seconds."""
        return self.whole.run.to_frame()

    @cached_property
    def whole(self) -> Prediction:
        """The same prediction with every micro-batch simulated, for timelines and traces."""
        from simulator.simulation import SimulationOptions, simulate

        if not self.run.repetitions or self.run.is_endless:
            return self
        return simulate(self.cluster, self.workload, SimulationOptions(periodic=False))

    @property
    def workload(self) -> Workload:
        return self.built.setting.job

    @cached_property
    def critical_path(self) -> list[dict[str, Any]]:
        """[{kind, seconds}] of the chain of tasks that determines the step, longest first; sums to it.

        In order and task by task: `whole.run.critical_path(whole.built.program)`.
        """
        from simulator.results.critical_path import critical_seconds

        seconds = critical_seconds(self.built.program, self.run, self.step_time_s)
        return [{"kind": kind, "seconds": amount} for kind, amount in seconds.items()]

    @cached_property
    def sensitivity(self) -> dict[str, float]:
        """d(log step) / d(log parameter) of what limits the critical path, the strongest first."""
        from simulator.results.elasticities import Elasticities
        from simulator.results.sensitivity import sensitivity

        divide = Elasticities(self.built).of
        return sensitivity(self.built.program, self.run, self.step_time_s, divide)

    @cached_property
    def origins(self) -> tuple[Origin, ...]:
        """Where the numbers behind this prediction come from, one per part of the model."""
        from simulator.results.origins import origins

        return origins(self.cluster, self.workload)

    @property
    def warnings(self) -> list[str]:
        """Settings of the plan without the effect they seem to have, and what the time leaves out."""
        flash = self.built.setting.software.flash_attention
        found = [f"{key}: {message}" for key, message in self.workload.warnings_on(self.gpus, flash)]
        return [*found, NEARLY_FULL] if self.memory.nearly_full else found

    @cached_property
    def remedies(self) -> tuple[Remedy, ...]:
        """Changes of the plan that were tried and fit, fastest first; empty where the plan fits as it is."""
        from simulator.results.remedies import remedies

        return () if self.memory.fits else remedies(self.cluster, self.workload)

    def plot(self) -> Figure:
        """The timeline as a picture: one row per lane, coloured by kind."""
        from simulator.report.timeline_plot import timeline_figure

        return timeline_figure(self)

    def to_dict(self) -> dict[str, Any]:
        """The object of `clustersim run --json` (design, section 7)."""
        rates: dict[str, Any] = {"samples_per_s": self.samples_per_s}
        if self.tokens_per_s is not None:
            rates |= {
                "tokens_per_s": self.tokens_per_s,
                "tokens_per_s_per_gpu": self.tokens_per_s / self.gpus,
            }
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
            "sensitivity": self.sensitivity,
            "meta": {
                **self.meta,
                "origins": [origin.to_dict() for origin in self.origins],
                "warnings": self.warnings,
            },
        }
