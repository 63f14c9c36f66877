"""What change of the plan would make it fit, and what would it cost? Tried, not guessed.

Changes are tried alone first, then in combinations, until some fit. The closed form of memory (`sweeps.bound`) sorts
out what cannot fit; the rest is simulated, the fastest by its bound first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.costs.memory import state_rule
from simulator.simulation import simulate
from simulator.sweeps.given_plans import bounds_of
from simulator.workloads.plan_checks import workload_faults

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.results.prediction import Prediction
    from simulator.sweeps.bound import Bounds
    from simulator.workloads.plan import Plan
    from simulator.workloads.workload import Workload

Change = tuple[tuple[str, Any], ...]
"""Keys of the plan and their new values."""

MOST_CHANGES = 3
SLOWEST = 1.25
"""Plans this much slower than the best remedy are of no use beside it."""
BEAM = 2
"""Combinations grow from the changes that came nearest to fitting, so many of them at a time."""


@dataclass(frozen=True)
class Remedy:
    """Settings under which the plan fits, its fullest GPU, and the step time then."""

    settings: Mapping[str, Any]
    peak_bytes: float
    capacity_bytes: float
    step_time_s: float

    @property
    def command(self) -> str:
        """As typed after `clustersim run CLUSTER WORKLOAD`."""
        return " ".join(f"--set {key}={_typed(value)}" for key, value in self.settings.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            "set": dict(self.settings),
            "peak_bytes": self.peak_bytes,
            "step_time_s": self.step_time_s,
        }


def remedies(cluster: Cluster, workload: Workload, most: int = 5) -> tuple[Remedy, ...]:
    """The fastest plans, at most `most`, that fit after as few changes as possible; empty if none was found.

    Plans that can be no faster than SLOWEST x the fastest are not among them.
    """
    if needed_gpus(cluster, workload) > cluster.num_gpus:
        return ()
    beam: list[Change] = [()]
    seen: set[Change] = set()
    for _ in range(MOST_CHANGES):
        tried = [
            change
            for change in _longer(workload, beam, seen)
            if not _senseless(cluster, _apply(workload, change))
        ]
        plans = [_apply(workload, change).plan for change in tried]
        bounds = bounds_of(cluster, workload, plans)
        found, share = _fitting(cluster, workload, tried, bounds, most)
        if found:
            return tuple(found)
        order = sorted(range(len(tried)), key=lambda one: (share[one], str(tried[one])))
        beam = [tried[one] for one in order[:BEAM]]
    return ()


def _longer(workload: Workload, changes: Sequence[Change], seen: set[Change]) -> Iterator[Change]:
    """Every change with one more added, which then counts as seen."""
    for change in changes:
        for step in single_changes(_apply(workload, change).plan):
            both = tuple(sorted({**dict(change), **dict(step)}.items()))
            if both not in seen and not set(dict(step)) & set(dict(change)):
                seen.add(both)
                yield both


def _fitting(
    cluster: Cluster, workload: Workload, changes: Sequence[Change], bounds: Bounds, most: int
) -> tuple[list[Remedy], list[float]]:
    """The fastest of the changed plans that fit, and the share of memory that each needs at least.

    What does not fit by its bound is not simulated, nor what can be no faster than those that are found.
    """
    capacity = max(group.node.gpu.memory.total for group in cluster.node_groups)
    share = [float(peak) / capacity for peak in bounds.peak_bytes]
    found: list[Remedy] = []
    for one in bounds.step_time.argsort(kind="stable").tolist():
        least = float(bounds.step_time[one])
        beyond = found and least > SLOWEST * found[0].step_time_s
        if share[one] > 1.0 or beyond or (len(found) == most and least >= found[-1].step_time_s):
            continue
        prediction = simulate(cluster, _apply(workload, changes[one]))
        share[one] = prediction.memory.fullest.share
        if prediction.memory.fits:
            found.append(_remedy(changes[one], prediction))
            found = sorted(found, key=lambda one: one.step_time_s)[:most]
    return found, share


def needed_gpus(cluster: Cluster, workload: Workload) -> int:
    """GPUs whose memory holds the model's state alone, were it split without remainder."""
    capacity = min(group.node.gpu.memory.total for group in cluster.node_groups)
    return int(-(-workload.model.num_parameters * state_rule(workload).total // capacity))


def single_changes(plan: Plan) -> Iterator[Change]:
    """Changes that may save memory, one setting each; what does not apply to the workload is sorted out later."""
    modes = ("none", "selective", "full")
    for mode in modes[modes.index(plan.recompute) + 1 :]:
        yield (("recompute", mode),)
    if plan.attention == "unfused":
        yield (("attention", "flash"),)
    if not plan.sequence_parallel:
        yield (("sequence_parallel", True),)
    for stage in range(plan.zero + 1, 4):
        yield (("zero", stage),)
    if plan.zero == 3 and not plan.zero3.reshard_after_forward:
        yield (("zero3.reshard_after_forward", True),)
    if plan.micro_batch > 1:
        yield (("micro_batch", plan.micro_batch // 2),)
    if plan.vpp > 1:
        yield (("vpp", 1),)
    for axis in ("tp", "pp", "cp"):
        freed = (("dp", None),) if plan.dp is not None else ()
        yield (*freed, (axis, getattr(plan, axis) * 2))


def _apply(workload: Workload, change: Change) -> Workload:
    """The workload with the plan changed, not validated."""
    plan = workload.plan
    for key, value in change:
        head, _, inner = key.partition(".")
        if inner:
            value = getattr(plan, head).model_copy(update={inner: value})
        plan = plan.model_copy(update={head: value})
    return workload.model_copy(update={"plan": plan})


def _senseless(cluster: Cluster, workload: Workload) -> bool:
    """The plan cannot run on the cluster, or shards over one rank."""
    plan = workload.plan
    shares_nothing = plan.zero > 0 and plan.data_parallel(cluster.num_gpus) * plan.cp == 1
    broken = workload_faults(workload) or workload.faults_on(cluster.num_gpus)
    return shares_nothing or bool(broken)


def _remedy(change: Change, prediction: Prediction) -> Remedy:
    settings = {f"plan.{key}": value for key, value in change}
    memory = prediction.memory
    return Remedy(settings, memory.peak_bytes, memory.capacity_bytes, prediction.step_time_s)


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
