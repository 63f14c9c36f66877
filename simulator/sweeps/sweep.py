"""What a sweep is: a base design, and the values that its keys take (`workloads/sweeps/*.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from simulator.description.base import Description, Named
from simulator.description.faults import raise_if_any, suggestion
from simulator.description.overrides import HEADS
from simulator.sweeps.ranges import Range

SPECIAL = ("cluster", "workload", "gpus")
"""Keys that name a whole description, or the number of GPUs."""


class Sample(Description):
    """Points drawn at random."""

    count: int = Field(gt=0, description="How many points.")
    seed: int = Field(default=0, description="Seed of the draw.")
    over: dict[str, Range | tuple[Any, ...]] = Field(description="Key to a list to choose from, or a range.")


class Best(Description):
    """Which plan each point runs: the best that fits, found by search."""

    objective: str = Field(default="step_time", description="As in `clustersim search`.")
    values: dict[str, tuple[Any, ...]] = Field(
        default_factory=dict,
        description="Key of the plan to the values to try; all that may make sense if left out.",
    )
    constraints: tuple[str, ...] = Field(default=(), description="Such as `mfu>=0.4`.")


class Pareto(Description):
    """Between which numbers of a prediction is the trade-off?"""

    minimize: tuple[str, ...] = Field(
        default=(), description="Numbers that should be small, such as step_time_s."
    )
    maximize: tuple[str, ...] = Field(default=(), description="Numbers that should be large, such as mfu.")


class Sweep(Named):
    """Points = every combination of `grid`, for every entry of `list`, for every sample.

    Keys are those of `--set`, or cluster, workload and gpus.
    """

    kind: Literal["sweep"] = Field(default="sweep", description="Always `sweep`.")
    cluster: str = Field(
        default="", description="Cluster of all points (name or path), unless a key sets it."
    )
    workload: str = Field(
        default="", description="Workload of all points (name or path), unless a key sets it."
    )
    gpus: int | None = Field(
        default=None, gt=0, description="GPUs of all points; what the job can use if left out."
    )
    base: dict[str, Any] = Field(default_factory=dict, description="Settings of all points, as in `--set`.")
    grid: dict[str, tuple[Any, ...]] = Field(
        default_factory=dict, description="Key to its values; all combinations."
    )
    points: tuple[dict[str, Any], ...] = Field(
        default=(), alias="list", description="Settings of single points."
    )
    sample: Sample | None = Field(default=None, description="Points drawn at random.")
    best: Best | None = Field(
        default=None, description="Search the best plan of each point; null: run its plan."
    )
    pareto: Pareto = Field(
        default=Pareto(minimize=("step_time_s",)),
        description="Numbers whose trade-off is reported and drawn.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_if_any([*self._check_keys(), *self._check_base(), *self._check_ranges()])
        return self

    def _check_keys(self) -> Iterator[tuple[str, str]]:
        places = [("base", self.base), ("grid", self.grid)]
        places += [(f"list.{index}", point) for index, point in enumerate(self.points)]
        places += [("sample.over", self.sample.over)] if self.sample is not None else []
        for above, keys in places:
            for key in keys:
                head, _, rest = key.partition(".")
                if key not in SPECIAL and (head not in HEADS or not rest):
                    hint = suggestion(key, SPECIAL) or suggestion(head, HEADS)
                    known = f"(cluster.…, workload.…, model.…, plan.…, or {', '.join(SPECIAL)})"
                    yield f"{above}.{key}", f"unknown key {key!r}{hint} {known}"

    def _check_ranges(self) -> Iterator[tuple[str, str]]:
        for key, options in (self.sample.over if self.sample is not None else {}).items():
            fault = options.wrong if isinstance(options, Range) else None
            if fault is not None:
                yield f"sample.over.{key}", fault

    def _check_base(self) -> Iterator[tuple[str, str]]:
        for key in ("cluster", "workload"):
            given = getattr(self, key) or any(key in keys for keys in (self.base, self.grid, *self.points))
            if not given and not (self.sample is not None and key in self.sample.over):
                yield key, f"which {key}? Give {key}, or vary it"
