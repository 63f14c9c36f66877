"""From an executed program to a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, sqrt
from typing import Any

from simulator.engine.timeline import Timeline
from simulator.hardware.cluster import Cluster
from simulator.program.builder import Built
from simulator.results.breakdown import breakdown, critical_class
from simulator.results.energy import cost, energy
from simulator.results.prediction import MemoryReport, Prediction
from simulator.workloads.workload import Workload


def predict(
    cluster: Cluster, workload: Workload, built: Built, timeline: Timeline, meta: Mapping[str, Any]
) -> Prediction:
    """Everything that design section 7 lists, read off the timeline."""
    topology = built.communicators.communicators.topology
    gpus = built.setting.grid.world
    critical = critical_class(built.program, timeline)
    shares = breakdown(built.program, timeline, critical)
    waiting = jitter_seconds(built, shares)
    shares["other"] += waiting
    step = timeline.makespan + waiting
    model_flops, executed = workload.flops, executed_flops(built, timeline)
    peak = sum(
        topology.hardware[int(topology.gpu_hardware[rank])].peak(workload.precision) * count
        for rank, count in zip(built.communicators.representatives, built.program.members, strict=True)
    )
    use = utilization(built, timeline, step)
    use["tensor_core"] = executed / (step * peak)
    power = energy(cluster, use["gpu"])
    return Prediction(
        step_time_s=step,
        step_time_low_s=None,
        step_time_high_s=None,
        gpus=gpus,
        samples_per_s=workload.global_batch / step,
        tokens_per_s=workload.tokens / step if workload.model.counts_tokens else None,
        tflops_per_gpu=model_flops / step / gpus / 1e12,
        mfu=model_flops / (step * peak),
        hfu=executed / (step * peak),
        breakdown_s=shares,
        utilization=use,
        memory=memory_report(built, timeline),
        energy_j=None if power is None else power * step,
        power_w=power,
        cost_usd=cost(cluster, power, step),
        meta=meta,
        run=timeline,
        built=built,
    )


def jitter_seconds(built: Built, shares: Mapping[str, float]) -> float:
    """What a synchronous step waits for its slowest rank, beyond the mean.

    The largest of n normal deviates exceeds their mean by about sqrt(2 ln n) standard deviations; n counts the
    nodes, since GPUs of one node share what disturbs them.
    """
    nodes = max(1, built.communicators.communicators.topology.num_nodes)
    busy = shares["compute"] + shares["recompute"]
    return built.setting.software.jitter * sqrt(2.0 * log(nodes)) * busy


def executed_flops(built: Built, timeline: Timeline) -> float:
    """Matrix FLOPs of the step over all ranks, recomputation included, by the model's counting rules."""
    by_class = timeline.totals_by_class("flops")
    return sum(by_class.get(c, 0.0) * count for c, count in enumerate(built.program.members))


def utilization(built: Built, timeline: Timeline, step: float) -> dict[str, float]:
    """Mean use of each kind of resource over the step, weighted by how many each one stands for."""
    total: dict[str, float] = {}
    count: dict[str, float] = {}
    scale = timeline.makespan / step if step else 0.0
    for resource, share in zip(built.program.resources, timeline.utilization.tolist(), strict=True):
        name = resource.kind.removesuffix("_out").removesuffix("_in")
        total[name] = total.get(name, 0.0) + share * resource.members * scale
        count[name] = count.get(name, 0.0) + resource.members
    return {name: total[name] / count[name] for name in total}


def memory_report(built: Built, timeline: Timeline) -> MemoryReport:
    """The fullest rank class, relative to its GPU's capacity; allocator slack is a share of what comes and goes."""
    topology = built.communicators.communicators.topology
    slack = built.setting.software.memory.fragmentation
    reports = []
    for peak in timeline.memory:
        kinds = dict(peak.by_kind)
        dynamic = sum(amount for kind, amount in kinds.items() if kind in DYNAMIC)
        if slack * dynamic:
            kinds["fragmentation"] = slack * dynamic
        gpu = topology.hardware[int(topology.gpu_hardware[built.communicators.representatives[peak.rank_class]])]
        name = built.program.rank_classes[peak.rank_class]
        reports.append(MemoryReport(sum(kinds.values()), gpu.memory.capacity, kinds, name))
    fullest = max(reports, key=lambda report: report.peak_bytes / report.capacity_bytes)
    per_class = {report.rank_class: report.peak_bytes for report in reports}
    return MemoryReport(
        fullest.peak_bytes, fullest.capacity_bytes, fullest.by_kind, fullest.rank_class, per_class
    )


DYNAMIC = ("activations", "transient", "gathered parameters")
