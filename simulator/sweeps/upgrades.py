"""What would one change of the hardware, or of the plan, gain? Every answer is a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.description.faults import DescriptionError
from simulator.simulation import simulate
from simulator.sweeps.changes import Design
from simulator.sweeps.given_plans import bounds_of
from simulator.workloads.plan import Plan
from simulator.workloads.plan_checks import workload_faults

TIMES = 2.0
"""How many times better a part of the hardware gets."""


@dataclass(frozen=True)
class Change:
    """A change in words, as settings, and the step with it; `gain`: by how much the throughput rises."""

    name: str
    settings: Mapping[str, Any]
    step_time: float
    gain: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "set": dict(self.settings),
            "step_time_s": self.step_time,
            "gain": self.gain,
        }


def hardware_changes(design: Design, step_time: float) -> list[Change]:
    """Each part of the hardware twice as good, by gain."""
    found = []
    for name, keys in _parts(design):
        changed, settings = design, {}
        for key, value in keys.items():
            changed = changed.with_value(key, value)
            settings[key] = design.written(key, value)
        step = simulate(changed.cluster, changed.workload).step_time_s
        found.append(Change(name, settings, step, step_time / step - 1.0))
    return sorted(found, key=lambda change: -change.gain)


def _parts(design: Design) -> Iterator[tuple[str, dict[str, float]]]:
    """(name, new values by key) of what can get better."""
    cluster = design.cluster
    nodes = [f"cluster.groups.{i}.node" for i in range(len(cluster.groups))] or ["cluster.node"]

    def twice(*parts: str) -> dict[str, float]:
        keys = [f"{node}.{part}" for node in nodes for part in parts]
        return {key: TIMES * design.value(key) for key in keys}

    formats = sorted(set.intersection(*(set(group.node.gpu.dense_peak) for group in cluster.node_groups)))
    yield "tensor cores x 2", twice(*[f"gpu.dense_peak.{name}" for name in formats])
    yield "HBM bandwidth x 2", twice("gpu.memory.bandwidth")
    if all(group.node.gpu.power is not None for group in cluster.node_groups):
        yield "power limit x 2", twice("gpu.power.max")
    if all(group.node.gpu.scale_up is not None for group in cluster.node_groups):
        yield "scale-up links x 2", twice("gpu.scale_up.bandwidth")
    if cluster.total_nodes > 1:
        yield "NICs x 2", twice("nic.bandwidth")
        oversubscription = getattr(cluster.fabric, "oversubscription", None)
        if oversubscription is not None and oversubscription > 1.0:
            yield "fabric without oversubscription", {"cluster.fabric.oversubscription": 1.0}


def plan_changes(design: Design, step_time: float, most: int = 3) -> list[Change]:
    """The `most` best single changes of the plan that fit, fastest first, whether or not they gain anything."""
    candidates = [(change, plan) for change, plan in _neighbours(design.workload.plan) if _runs(design, plan)]
    if not candidates:
        return []
    least = bounds_of(design.cluster, design.workload, [plan for _, plan in candidates]).step_time
    found: list[Change] = []
    for index in least.argsort(kind="stable").tolist():
        if len(found) >= most and least[index] >= sorted(change.step_time for change in found)[most - 1]:
            break  # nothing that is left can be among the best
        change, plan = candidates[index]
        try:
            prediction = simulate(design.cluster, design.workload.model_copy(update={"plan": plan}))
        except DescriptionError:
            continue
        if prediction.memory.fits:
            step = prediction.step_time_s
            settings = {f"plan.{key}": value for key, value in change.items()}
            found.append(Change(_told(change), settings, step, step_time / step - 1.0))
    return sorted(found, key=lambda change: change.step_time)[:most]


def _neighbours(plan: Plan) -> Iterator[tuple[dict[str, Any], Plan]]:
    """Plans that differ in one setting; dp follows from the degrees."""
    for change in _single_changes(plan):
        update: dict[str, Any] = {"dp": None}
        if "pp" in change or "vpp" in change:
            update |= {"layers_per_stage": None, "schedule": None}
        for key, value in change.items():
            head, _, inner = key.partition(".")
            update[head] = getattr(plan, head).model_copy(update={inner: value}) if inner else value
        yield change, plan.model_copy(update=update)


def _single_changes(plan: Plan) -> Iterator[dict[str, Any]]:
    for axis in ("tp", "pp", "cp", "ep", "micro_batch"):
        size = getattr(plan, axis)
        yield {axis: 2 * size}
        if size % 2 == 0:
            yield {axis: size // 2}
    for chunks in range(1, 17):
        if chunks != plan.vpp:
            yield {"vpp": chunks}
    for stage in range(4):
        if stage != plan.zero:
            yield {"zero": stage}
    for mode in ("none", "selective", "full"):
        if mode != plan.recompute:
            yield {"recompute": mode}
    yield {"sequence_parallel": not plan.sequence_parallel}
    if plan.attention == "unfused":
        yield {"attention": "flash"}
    for what in ("dp_gradients", "dp_parameters", "tp", "pp"):
        if getattr(plan.overlap, what) is not True:
            yield {f"overlap.{what}": True}


def _runs(design: Design, plan: Plan) -> bool:
    job = design.workload.model_copy(update={"plan": plan})
    return not workload_faults(job) and not job.faults_on(design.cluster.num_gpus)


def _told(change: Mapping[str, Any]) -> str:
    written = {key: str(value).lower() if isinstance(value, bool) else value for key, value in change.items()}
    return ", ".join(f"{key} {value}" for key, value in written.items())
