"""What does a person want to know of one prediction first? Words and numbers, for any way of showing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.report import quantities as write
from simulator.results.breakdown import critical_class
from simulator.results.sensitivity import gains

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction
    from simulator.workloads.plan import Plan


@dataclass(frozen=True)
class Share:
    """One kind of time: seconds and their share of the step."""

    kind: str
    seconds: float
    share: float


def title(prediction: Prediction, available: int | None = None) -> str:
    """`gpt3-175b on selene, 64 GPUs`; says so where the batch leaves some of the available ones without work."""
    workload = prediction.meta["workload"] or "workload"
    cluster = prediction.meta["cluster"] or "cluster"
    gpus = f"{prediction.gpus:,} GPU{'s' if prediction.gpus > 1 else ''}"
    if available is not None and available > prediction.gpus:
        gpus += f" of {available:,} (the most that the plan and its batch divide over; --gpus sets it)"
    return f"{workload} on {cluster}, {gpus}"


def plan_line(prediction: Prediction) -> str:
    """The plan in one line; what is at its simplest setting is left out."""
    workload, setting = prediction.workload, prediction.built.setting
    plan = workload.plan
    degrees = ("tp", "tp_x", "tp_z", "pp", "vpp", "cp", "ep")
    parts = [f"{name} {getattr(plan, name)}" for name in degrees if getattr(plan, name) > 1]
    if plan.stages:
        parts.append("stages " + " | ".join(f"tp {stage.tp} dp {stage.dp}" for stage in plan.stages))
    else:
        parts.append(f"dp {setting.grid.dp}")
    if plan.zero:
        groups = plan.zero3.shard_group
        parts.append(f"zero {plan.zero}" + (f" in groups of {groups}" if groups is not None else ""))
    if plan.synchronisation.scheme != "bsp":
        parts.append(f"synchronisation {plan.synchronisation.scheme}")
    parts.append(f"micro-batch {plan.micro_batch} × {setting.num_micro_batches}")
    if plan.pp > 1:
        parts.append(plan.schedule_name)
    if plan.sequence_parallel:
        parts.append("sequence parallel")
    if plan.recompute != "none":
        parts.append(f"recompute {plan.recompute}")
    if plan.cp > 1:
        parts.append(f"context exchange {plan.context_exchange}")
    parts += _offloaded(plan)
    return " · ".join([*parts, f"{setting.shard.attention} attention", workload.precision, plan.software])


def _offloaded(plan: Plan) -> list[str]:
    """What waits in host memory or on disks."""
    offload = plan.offload
    parts = (
        []
        if offload.optimizer == "none"
        else [f"optimizer on {offload.optimizer_tier} ({offload.optimizer})"]
    )
    parts += [] if offload.parameters == "none" else [f"parameters on {offload.parameters}"]
    return parts + ([f"{offload.activations:.0%} of activations on host"] if offload.activations else [])


def unsharding_line(prediction: Prediction) -> str | None:
    """What was left to be chosen by the memory that is left, and how it was; None where nothing was."""
    found = prediction.meta.get("unsharding")
    if found is None:
        return None
    value = found["value"]
    shown = f"{value:.3g}" if found["key"].endswith("fraction") else write.size(value)
    limit = write.size(found["limit_bytes"])
    tried = f"level {found['level']} of {found['levels']}, of {found['tried']} tried"
    return f"{found['key']} {shown}: the fastest within {limit} ({tried})"


def data_line(prediction: Prediction) -> str | None:
    """Documents, how they are packed, and the padding; None where every sample is one full sequence."""
    data, use = prediction.workload.data, prediction.meta.get("data")
    if data is None or use is None:
        return None
    mean = use["tokens"] / use["documents"]
    parts = [
        f"{use['documents']:,} documents of {mean:,.0f} tokens, the longest {use['longest']:,}",
        f"packing {data.packing}",
        f"{use['micro_batches']} micro-batch{'es' if use['micro_batches'] > 1 else ''}",
        f"{write.percent(use['padding'])} padding",
    ]
    if prediction.workload.deals:
        parts.append("groups " + " | ".join(map(_groups, use["groups"])))
    return " · ".join(parts)


def _groups(widths: list[int]) -> str:
    """`1 × 32 + 4 × 8`: how many groups of how many GPUs, the widest first."""
    counts = {width: widths.count(width) for width in sorted(set(widths), reverse=True)}
    return " + ".join(f"{count} × {width}" for width, count in counts.items())


def headline(prediction: Prediction) -> list[tuple[str, str, str]]:
    """Rows of (what, value, remark)."""
    low, high = prediction.step_time_low_s, prediction.step_time_high_s
    interval = "no error interval yet"
    if low is not None and high is not None:
        interval = f"{write.seconds(low)} to {write.seconds(high)}"
    rows = [("step time", write.seconds(prediction.step_time_s), interval)]
    what, rate = "samples", prediction.samples_per_s
    if prediction.tokens_per_s is not None:
        what, rate = "tokens", prediction.tokens_per_s
    rows.append((f"{what}/s", write.number(rate), f"{write.number(rate / prediction.gpus)} per GPU"))
    flops = f"{prediction.tflops_per_gpu:.1f} TFLOP/s per GPU; attention counted in full (causal not halved)"
    rows.append(("MFU", write.percent(prediction.mfu), flops))
    rows.append(("HFU", write.percent(prediction.hfu), "recomputation counted"))
    rows.append(("energy", *_energy(prediction)))
    rows.append(("cost", *_cost(prediction)))
    return rows


def _energy(prediction: Prediction) -> tuple[str, str]:
    if prediction.energy_j is None or prediction.power_w is None:
        return "unknown", "the hardware files give no power for a GPU or its node"
    return f"{write.energy(prediction.energy_j)} per step", f"{write.watts(prediction.power_w)} mean"


def _cost(prediction: Prediction) -> tuple[str, str]:
    if prediction.cost_usd is None:
        return "unknown", "the hardware files give no price for a GPU or its node"
    per_hour = prediction.cost_usd / prediction.step_time_s * 3600.0
    return f"{write.dollars(prediction.cost_usd)} per step", f"{write.dollars(per_hour)} per hour"


def shares(prediction: Prediction) -> list[Share]:
    """Kinds of time that are not zero, in the order of the breakdown."""
    step = prediction.step_time_s
    return [Share(kind, s, s / step) for kind, s in prediction.breakdown_s.items() if s > 0.0]


def critical_name(prediction: Prediction) -> str:
    """The rank class that the breakdown describes."""
    built = prediction.built
    return built.program.rank_classes[critical_class(built.program, prediction.run)]


def utilization_line(prediction: Prediction) -> str:
    used = {name: share for name, share in prediction.utilization.items() if share > 0.0}
    return " · ".join(f"{name.replace('_', ' ')} {write.percent(share)}" for name, share in used.items())


def critical_line(prediction: Prediction) -> str:
    """Kinds along the critical path with their share of the step."""
    step = prediction.step_time_s
    path = prediction.critical_path
    return " · ".join(f"{part['kind']} {write.percent(part['seconds'] / step)}" for part in path)


def limits_line(prediction: Prediction) -> str:
    """What limits the critical path: how many percent of the step 1 % more of each would save."""
    limits = gains(prediction.sensitivity).items()
    return " · ".join(f"{name.replace('_', ' ')} {write.percent(gain)}" for name, gain in limits)


def memory_line(prediction: Prediction) -> str:
    """`57.1 GiB (53.0 GiB to 67.9 GiB) of 79.2 GiB on stage 0: fits`."""
    memory = prediction.memory
    verdict = "fits" if memory.fits else f"does not fit, {write.size(memory.shortfall_bytes)} short"
    if memory.may_not_fit:
        verdict = "fits, if the prediction is not too low"
    peak, capacity = write.size(memory.peak_bytes), write.size(memory.capacity_bytes)
    error = f"{write.size(memory.peak_low_bytes)} to {write.size(memory.peak_high_bytes)}"
    return f"{peak} ({error}) of {capacity} on {memory.rank_class}: {verdict}"


def memory_kinds(prediction: Prediction) -> list[str]:
    """Kinds of memory that any stage holds at its peak, the largest in all first."""
    total: dict[str, float] = {}
    for stage in prediction.memory.by_stage():
        for kind, amount in stage.by_kind.items():
            total[kind] = total.get(kind, 0.0) + amount
    return sorted(total, key=lambda kind: (-total[kind], kind))


def origins_line(prediction: Prediction) -> str:
    """`gpu a100-sxm-80 · kernels a100-sxm · ...`."""
    return " · ".join(f"{origin.part} {origin.name}" for origin in prediction.origins)


def borrowed(prediction: Prediction) -> list[str]:
    """What was measured on other hardware than the cluster's, one sentence each."""
    return [
        f"{one.part} {one.name}: measured on {one.transferred_from}, carried over by datasheet ratios"
        for one in prediction.origins
        if one.transferred_from is not None
    ]
