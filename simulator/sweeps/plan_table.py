"""Many plans of one workload as columns of numbers, so that a formula can be evaluated for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.plan import Plan
from simulator.workloads.workload import Workload

Ints = NDArray[np.int64]

RECOMPUTE = ("none", "selective", "full")
LAYOUTS = ("even", "ends", "own")
"""How blocks are dealt to virtual stages: evenly; one fewer on the first and the last, beside embedding and head
(the Llama 3 layout); or as the variant's `layers_per_stage` says."""

SEARCHED = (
    "tp",
    "cp",
    "ep",
    "pp",
    "vpp",
    "zero",
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "schedule",
)
"""Keys of the plan that have a column of their own."""

COLUMNS = (*SEARCHED, "layout", "variant")


@dataclass(frozen=True, eq=False)
class PlanTable:
    """Plans of `workload` on `num_gpus` GPUs. `columns[key]` are integers: degrees as they are, settings as codes.

    Codes: `recompute` into RECOMPUTE, `schedule` into `schedules`, `layout` into LAYOUTS, `variant` into `variants`,
    which are the plans that give everything else.
    """

    workload: Workload
    num_gpus: int
    variants: tuple[Plan, ...]
    schedules: tuple[str, ...]
    columns: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def __getitem__(self, key: str) -> Ints:
        return self.columns[key]

    def take(self, which: Any) -> PlanTable:
        """The plans at these positions (or where a mask holds)."""
        columns = {key: column[which] for key, column in self.columns.items()}
        return PlanTable(self.workload, self.num_gpus, self.variants, self.schedules, columns)

    @property
    def data_parallel(self) -> Ints:
        return self.num_gpus // (self["tp"] * self["cp"] * self["pp"])

    @property
    def num_micro_batches(self) -> Ints:
        return self.workload.global_batch // (self["micro_batch"] * self.data_parallel)

    def plan(self, index: int) -> Plan:
        """The plan at a position."""
        row = {key: int(column[index]) for key, column in self.columns.items()}
        variant = self.variants[row["variant"]]
        update: dict[str, Any] = {
            key: row[key] for key in ("tp", "cp", "ep", "pp", "vpp", "zero", "micro_batch")
        }
        update["sequence_parallel"] = bool(row["sequence_parallel"])
        update["recompute"] = RECOMPUTE[row["recompute"]]
        update["schedule"] = self.schedules[row["schedule"]]
        update["dp"] = None
        update["recompute_layers"] = None
        update["layers_per_stage"] = layers_per_stage(
            variant, LAYOUTS[row["layout"]], self.workload.model.num_blocks, row["pp"] * row["vpp"]
        )
        return variant.model_copy(update=update)

    def job(self, index: int) -> Workload:
        """The workload with the plan at a position."""
        return self.workload.model_copy(update={"plan": self.plan(index)})


def layers_per_stage(
    plan: Plan, layout: str, num_blocks: int, num_stages: int
) -> tuple[int, ...] | Literal["auto"] | None:
    """The plan's key of that name under a layout."""
    if layout == "even":
        return None
    if layout == "own":
        return plan.layers_per_stage
    each = (num_blocks + 2) // num_stages
    return (each - 1, *[each] * (num_stages - 2), each - 1)


def table_of(workload: Workload, num_gpus: int, plans: Iterable[Plan]) -> PlanTable:
    """Given plans as a table; what has no column makes a variant of its own."""
    from simulator.program.schedules import SCHEDULES

    schedules = tuple(sorted(SCHEDULES))
    variants: dict[Plan, int] = {}
    rows = []
    for plan in plans:
        neutral = plan.model_copy(update={key: Plan.model_fields[key].default for key in SEARCHED})
        row = {key: int(getattr(plan, key)) for key in ("tp", "cp", "ep", "pp", "vpp", "zero", "micro_batch")}
        row["sequence_parallel"] = int(plan.sequence_parallel)
        row["recompute"] = RECOMPUTE.index(plan.recompute)
        row["schedule"] = schedules.index(plan.schedule_name)
        row["layout"] = LAYOUTS.index("even" if plan.layers_per_stage is None else "own")
        row["variant"] = variants.setdefault(neutral, len(variants))
        rows.append(row)
    columns = {key: np.array([row[key] for row in rows], dtype=np.int64) for key in COLUMNS}
    return PlanTable(workload, num_gpus, tuple(variants), schedules, columns)
