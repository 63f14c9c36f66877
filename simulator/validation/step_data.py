"""The published training steps that predictions are judged on: one row per measured configuration."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload


WITHOUT_DROPOUT = ("llmfoundry", "mlperf_training")
"""Sources whose GPT models were trained without dropout."""
MEASURED = ("row", "locator", "split", "step_time_s", "memory_gib", "memory_kind")
"""Columns in which two runs of one layout differ."""
TP_OVERLAP: dict[str, bool | str] = {"none": False, "backward": True, "pipelined": "pipelined"}
SCALING = {"fsdp2-2024": "current", "fsdp2-2025": "current"}
"""How a software scales fp8 tensors, where not as earlier steps say (torchao: dynamically)."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A measured step: where, what, how, and how long; `values` are the columns of the file."""

    values: dict[str, str]

    def __getattr__(self, name: str) -> str:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def number(self, name: str, default: int = 0) -> int:
        return int(float(self.values[name])) if self.values[name] else default

    def layout(self, *beside: str) -> tuple[str, ...]:
        """What was run: all columns but those that say where it is found, what was measured, and `beside`."""
        left_out = (*MEASURED, *beside)
        return tuple(value for column, value in self.values.items() if column not in left_out)

    @property
    def step_time(self) -> float | None:
        """Measured seconds, None where only memory was reported."""
        return float(self.values["step_time_s"]) if self.values["step_time_s"] else None

    @property
    def memory(self) -> float | None:
        """Measured peak bytes, None where not reported."""
        return float(self.values["memory_gib"]) * 2**30 if self.values["memory_gib"] else None


@lru_cache(maxsize=1)
def step_rows() -> tuple[StepRow, ...]:
    """All rows that the package ships."""
    data = files("simulator.validation") / "data" / "steps" / "steps.csv.gz"
    text = gzip.decompress(data.read_bytes()).decode()
    return tuple(StepRow(row) for row in csv.DictReader(text.splitlines()))


def rows_of(source: str) -> Sequence[StepRow]:
    """The rows of one source."""
    return [row for row in step_rows() if row.source == source]


def sources() -> list[str]:
    return list(dict.fromkeys(row.source for row in step_rows()))


def cluster_of(row: StepRow) -> Cluster:
    """The catalogue cluster the row was measured on, with as many GPUs."""
    return _cluster(row.cluster, row.number("gpus"), row.gpu)


@lru_cache(maxsize=64)
def _cluster(name: str, gpus: int, gpu: str) -> Cluster:
    from simulator import load_cluster

    return load_cluster(name, gpus=gpus, overrides={"node.gpu": gpu} if gpu else None)


def workload_of(row: StepRow) -> Workload:
    """The row as a workload. Raises DescriptionError or ValueError where it cannot be expressed."""
    from simulator.workloads.workload import Workload

    return Workload.model_validate(
        {
            "name": f"{row.source}/{row.row}",
            "model": model_of(row),
            "global_batch": row.number("global_batch"),
            "sequence_length": row.number("sequence"),
            "precision": row.precision,
            "plan": plan_of(row),
        }
    )


def model_of(row: StepRow) -> dict[str, Any]:
    if row.base:  # a published model of many more shapes than a row states
        from simulator.description import load

        shapes = load("model", row.base).model_dump(
            by_alias=True, exclude={"name", "sources"}, exclude_none=True
        )
        return {
            **shapes,
            "name": row.model,
            "max_sequence": max(row.number("sequence"), shapes["max_sequence"]),
        }
    model: dict[str, Any] = {
        "name": row.model,
        "family": row.family,
        "layers": row.number("layers"),
        "hidden": row.number("hidden"),
        "heads": row.number("heads"),
        "kv_heads": row.number("kv_heads") or row.number("heads"),
        "ffn": row.number("ffn"),
        "vocab": row.number("vocab"),
        "max_sequence": row.number("sequence"),
    }
    if row.head_dim:
        model["head_dim"] = row.number("head_dim")
    if row.family == "gpt" and row.source in WITHOUT_DROPOUT:
        model["dropout"] = False
    return model


def plan_of(row: StepRow) -> dict[str, Any]:
    plan: dict[str, Any] = {key: row.number(key, 1) for key in ("tp", "pp", "vpp", "cp", "ep", "micro_batch")}
    plan["zero"] = row.number("zero")
    plan["sequence_parallel"] = row.sequence_parallel == "1" and plan["tp"] > 1
    plan["recompute"] = row.recompute
    if row.recompute_modules:
        plan["recompute_modules"] = row.recompute_modules.split()
    if row.recompute_layers:
        plan["recompute_layers"] = row.number("recompute_layers")
    if row.wide_ends:
        first, last = row.wide_ends.split()
        plan["wide_ends"] = {"first": int(first), "last": int(last)}
    plan["attention"] = row.attention
    if row.scaling:
        plan["scaling"] = row.scaling
    elif row.precision == "fp8" and row.software in SCALING:
        plan["scaling"] = SCALING[row.software]
    plan["software"] = row.software
    if row.unfused:
        plan["unfused"] = row.unfused.split()
    plan["overlap"] = {"tp": TP_OVERLAP[row.tp_overlap]} if row.tp_overlap else {}
    if row.overlap_ep:
        plan["overlap"]["ep"] = True
    for key in ("gradient_dtype", "optimizer_dtype", "parameter_dtype"):
        if getattr(row, key):
            plan[key] = getattr(row, key)
    if row.transposed_weights:
        plan["transposed_weights"] = row.transposed_weights == "1"
    if row.master_weights:
        plan["master_weights"] = row.master_weights == "1"
    if row.shard_group or row.gather_dtype:
        plan["zero3"] = {
            "shard_group": row.number("shard_group") or None,
            "gather_dtype": row.gather_dtype or None,
        }
    if row.dp:
        plan["dp"] = row.number("dp")
    if row.order:
        plan["order"] = row.order.split()
    if row.family == "moe":
        plan |= _mixture(row)
    layers, virtual = row.number("layers"), plan["pp"] * plan["vpp"]
    if row.layers_per_stage:
        plan["layers_per_stage"] = [int(count) for count in row.layers_per_stage.split()]
    elif layers % virtual:
        plan["layers_per_stage"] = uneven(layers, virtual)
    return plan


def _mixture(row: StepRow) -> dict[str, Any]:
    """How tokens reach the experts: DeepEP and HybridEP send a token once to a node, and once to a GPU in it."""
    experts: dict[str, Any] = {"tp": row.number("expert_tp", 1)} if row.number("tp", 1) > 1 else {}
    if row.capacity:
        experts["capacity"] = float(row.capacity)
    if row.dispatcher in ("deepep", "hybridep"):
        node, ep = cluster_of(row).node, row.number("ep", 1)
        across = node is not None and ep > node.num_gpus
        experts |= {"domain": node.num_gpus} if node is not None and across else {"deduplicated": True}
    return {"experts": experts, "cuda_graphs": row.graphs.split()}


def uneven(layers: int, stages: int) -> list[int]:
    """Blocks per stage where embedding and head count as one layer each (Megatron-DeepSpeed's `type` partition)."""
    even, extra = divmod(layers + 2, stages)
    counts = [even + (stage < extra) for stage in range(stages)]
    counts[0] -= 1
    counts[-1] -= 1
    return counts
