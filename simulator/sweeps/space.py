"""Which plans are there for a workload on N GPUs, and why can the others not run?

Degrees that multiply to N, and for each of them every combination of the other settings. A combination that cannot
run is counted under the check that refuses it (`simulator.workloads.plan_checks`), not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from simulator.description.faults import raise_if_any, shown, suggestion
from simulator.description.validation import message_for
from simulator.program.schedules import SCHEDULES
from simulator.sweeps.plan_table import COLUMNS, LAYOUTS, RECOMPUTE, SEARCHED, PlanTable, layers_per_stage
from simulator.workloads.plan import Plan
from simulator.workloads.plan_checks import CLUSTER_CHECKS, WORKLOAD_CHECKS
from simulator.workloads.workload import Workload

MOST_MICRO_BATCH = 16
"""Samples; memory hardly ever allows more where the batch leaves a choice."""

Row = tuple[int, ...]
"""Values of COLUMNS."""


@dataclass(frozen=True)
class Space:
    """Values to try, by key of the plan; what is left out takes every value that may make sense.

    `others` are keys without a column of their own (attention, order, software, ...), with the values to try.
    """

    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    others: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def space_of_values(values: Mapping[str, Sequence[Any]]) -> Space:
    """Values by key of the plan, as written: checked, and told apart into searched keys and others.

    Raises KeyFaults for what is no key of a plan, or no value of it.
    """
    searched: dict[str, Sequence[Any]] = {}
    others: dict[str, Sequence[Any]] = {}
    faults = []
    for written, given in values.items():
        name = written.removeprefix("plan.")
        if name not in Plan.model_fields:
            faults.append((written, f"is no key of a plan{suggestion(name, Plan.model_fields)}"))
            continue
        info = Plan.model_fields[name]
        annotation: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            found = [adapter.validate_python(value) for value in given]
        except ValidationError as error:
            first = error.errors()[0]
            value = shown(str(first["input"]))
            faults.append((written, message_for(first["type"], first["msg"], first.get("ctx", {}), value)))
            continue
        unknown = [value for value in found if name == "schedule" and value not in (None, *SCHEDULES)]
        if unknown:
            known = ", ".join(sorted(SCHEDULES))
            hint = suggestion(unknown[0], SCHEDULES)
            faults.append((written, f"unknown schedule {shown(unknown[0])}{hint} (searched are {known})"))
            continue
        (searched if name in SEARCHED else others)[name] = found
    raise_if_any(faults)
    return Space(searched, others)


@dataclass(frozen=True)
class Plans:
    """The plans that can run, how many there are in all, and how many each check refused."""

    table: PlanTable
    total: int
    infeasible: Mapping[str, int]


def plans(workload: Workload, num_gpus: int, space: Space = Space()) -> Plans:
    """Every plan of the space on `num_gpus` GPUs."""
    maker = _Maker(workload, num_gpus, space)
    blocks = [np.array(list(rows), dtype=np.int64) for rows in maker.rows()]
    blocks = [block for block in blocks if len(block)]
    matrix = np.concatenate(blocks) if blocks else np.zeros((0, len(COLUMNS)), dtype=np.int64)
    columns = {key: np.ascontiguousarray(matrix[:, i]) for i, key in enumerate(COLUMNS)}
    table = PlanTable(workload, num_gpus, maker.variants, maker.schedules, columns)
    return Plans(table, len(table) + sum(maker.refused.values()), dict(sorted(maker.refused.items())))


class _Maker:
    """Goes through degrees, then schedules, batches and the rest, and leaves out what cannot run as early as it can."""

    def __init__(self, workload: Workload, num_gpus: int, space: Space) -> None:
        self.workload, self.num_gpus, self.space = workload, num_gpus, space
        self.refused: Counter[str] = Counter()
        self.schedules = tuple(sorted(SCHEDULES))
        neutral = {
            "dp": None,
            "vpp": 1,
            "micro_batch": 1,
            "schedule": None,
            "layers_per_stage": None,
            "sequence_parallel": False,
            "zero": 0,
            "recompute": "none",
            "recompute_layers": None,
        }
        keys = list(space.others)
        self.variants: tuple[Plan, ...] = tuple(
            workload.plan.model_copy(update={**neutral, **dict(zip(keys, values, strict=True))})
            for values in product(*space.others.values())
        )

    def rows(self) -> Iterator[Iterator[Row]]:
        for tp, pp, cp, ep in self._degrees():
            yield self._of_degrees({"tp": tp, "pp": pp, "cp": cp, "ep": ep})

    def _degrees(self) -> Iterator[tuple[int, int, int, int]]:
        divisors = _divisors(self.num_gpus)
        model = self.workload.model
        experts = divisors if model.deals_tables else _divisors(getattr(model, "num_experts", 1) or 1)
        options = [self.space.values.get(key) for key in ("tp", "pp", "cp", "ep")]
        tps, pps, cps = (divisors if values is None else list(values) for values in options[:3])
        eps = experts if options[3] is None else list(options[3])
        for tp, pp, cp, ep in product(tps, pps, cps, eps):
            if self.num_gpus % (tp * pp * cp) == 0:
                yield tp, pp, cp, ep

    def _of_degrees(self, degrees: dict[str, int]) -> Iterator[Row]:
        rest = self._rest()
        dp = self.num_gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"])
        batches = self._micro_batches(dp)
        pipelines = list(self._pipelines(degrees["pp"]))
        size = len(rest) * max(1, len(batches)) * len(pipelines)
        reason = self._reason({**degrees}, self.variants[0])
        if reason is not None:
            self.refused[reason] += size
            return
        kept = [
            (one, self._reason({**degrees, **dict(zip(REST, one[:-1], strict=True))}, self.variants[one[-1]]))
            for one in rest
        ]
        for pipeline in pipelines:
            change = self._pipeline_change(degrees["pp"], pipeline)
            for batch in batches:
                reason = self._reason({**degrees, **change, "micro_batch": batch}, self.variants[0])
                if reason is not None:
                    self.refused[reason] += len(rest)
                    continue
                for (sequence_parallel, zero, recompute, variant), refused in kept:
                    if refused is not None:
                        self.refused[refused] += 1
                        continue
                    yield self._row(degrees, pipeline, batch, sequence_parallel, zero, recompute, variant)

    def _row(
        self,
        degrees: Mapping[str, int],
        pipeline: tuple[int, str, str],
        batch: int,
        sequence_parallel: bool,
        zero: int,
        recompute: str,
        variant: int,
    ) -> Row:
        vpp, schedule, layout = pipeline
        row = {**degrees, "vpp": vpp, "zero": zero, "micro_batch": batch, "variant": variant}
        row["sequence_parallel"] = int(sequence_parallel)
        row["recompute"] = RECOMPUTE.index(recompute)
        row["schedule"] = self.schedules.index(schedule)
        row["layout"] = LAYOUTS.index(layout)
        return tuple(row[key] for key in COLUMNS)

    def _reason(self, changes: Mapping[str, Any], variant: Plan) -> str | None:
        """The first check that refuses the plan, None if it can run."""
        job = self.workload.model_copy(update={"plan": variant.model_copy(update=dict(changes))})
        for check in WORKLOAD_CHECKS:
            if any(True for _ in check(job)):
                return check.__name__.removeprefix("check_")
        for cluster_check in CLUSTER_CHECKS:
            if any(True for _ in cluster_check(job, self.num_gpus)):
                return cluster_check.__name__.removeprefix("check_")
        return None

    # --- the settings besides degrees ---

    def _rest(self) -> list[tuple[bool, int, str, int]]:
        values = self.space.values
        return list(
            product(
                values.get("sequence_parallel", (False, True)),
                values.get("zero", (0, 1, 2, 3)),
                values.get("recompute", RECOMPUTE),
                range(len(self.variants)),
            )
        )

    def _micro_batches(self, dp: int) -> list[int]:
        """Those that divide a replica's share of the batch; 1 where nothing does, for the checks to refuse."""
        given = self.space.values.get("micro_batch")
        if given is not None:
            return list(given)
        share, rest = divmod(self.workload.global_batch, dp)
        most = MOST_MICRO_BATCH if self.workload.model.counts_tokens else share  # images and clicks are small
        return [1] if rest else [size for size in _divisors(share) if size <= most]

    def _pipelines(self, pp: int) -> Iterator[tuple[int, str, str]]:
        """(vpp, schedule, layout) of a pipeline of `pp` stages."""
        blocks = self.workload.model.num_blocks
        values = self.space.values
        for layout in ("even", "ends") if pp > 1 else ("even",):
            dealt = blocks if layout == "even" else blocks + 2
            if layout == "ends" and dealt % pp:
                continue
            chunks = [v for v in _divisors(dealt // pp) if pp > 1 or v == 1] if dealt % pp == 0 else [1]
            for vpp in values.get("vpp", chunks):
                names = ("interleaved",) if vpp > 1 else ("1f1b", "gpipe") if pp > 1 else ("1f1b",)
                for schedule in values.get("schedule", names):
                    yield vpp, schedule, layout

    def _pipeline_change(self, pp: int, pipeline: tuple[int, str, str]) -> dict[str, Any]:
        vpp, schedule, layout = pipeline
        split = layers_per_stage(self.variants[0], layout, self.workload.model.num_blocks, pp * vpp)
        return {"vpp": vpp, "schedule": schedule, "layers_per_stage": split}


REST = ("sequence_parallel", "zero", "recompute")


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
