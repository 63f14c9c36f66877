"""From an executed program to a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.engine.timeline import Timeline
from simulator.hardware.cluster import Cluster
from simulator.program.builder import Built
from simulator.results.breakdown import breakdown, critical_class
from simulator.results.energy import cost, power
from simulator.results.interval import bounds
from simulator.results.memory import memory_report
from simulator.results.prediction import Prediction
from simulator.results.utilization import executed_flops, peak_flops, utilization
from simulator.results.waiting import waiting_seconds
from simulator.workloads.workload import Workload


def predict(
    cluster: Cluster, workload: Workload, built: Built, timeline: Timeline, meta: Mapping[str, Any]
) -> Prediction:
    """Everything that design section 7 lists, read off the timeline."""
    critical = critical_class(built.program, timeline)
    shares = breakdown(built.program, timeline, critical)
    waiting = waiting_seconds(built, cluster.stragglers, shares)
    shares["other"] += waiting
    step = timeline.step_seconds + waiting
    model_flops, executed = workload.flops, executed_flops(built, timeline)
    peak = step * peak_flops(built)
    use = utilization(built, timeline, step)
    watts = power(cluster, use["gpu"])
    gpus = built.setting.layout.world
    low, high = bounds(step, built)
    return Prediction(
        step_time_s=step,
        step_time_low_s=low,
        step_time_high_s=high,
        gpus=gpus,
        samples_per_s=workload.global_batch / step,
        tokens_per_s=workload.tokens / step if workload.model.counts_tokens else None,
        tflops_per_gpu=model_flops / step / gpus / 1e12,
        mfu=model_flops / peak,
        hfu=executed / peak,
        breakdown_s=shares,
        utilization=use,
        memory=memory_report(built, timeline),
        energy_j=None if watts is None else watts * step,
        power_w=watts,
        cost_usd=cost(cluster, watts, step),
        meta=meta,
        cluster=cluster,
        run=timeline,
        built=built,
    )
