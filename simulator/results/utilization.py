"""How busy was each kind of resource over the step, from 0 to 1?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.engine.timeline import Timeline
    from simulator.hardware.gpu import GPU
    from simulator.program.builder import Built

NAMES = {"scale_up": "nvlink", "mesh": "nvlink", "host": "host_link"}
"""Kind of link, without its direction → what users call it. `nvlink` stands for any scale-up link."""

ALWAYS = ("gpu", "tensor_core", "hbm", "nvlink", "nic")
"""Reported for every prediction, 0 where nothing uses it."""


def utilization(built: Built, timeline: Timeline, step: float) -> dict[str, float]:
    """Mean use of each kind of resource over `step` seconds, weighted by how many each one stands for.

    gpu: time in which kernels or collectives hold the SMs. tensor_core: matrix FLOPs executed, of peak. hbm: bytes
    that kernels must move, of peak bandwidth. Links: of those that anything was sent over, both directions.
    """
    total: dict[str, float] = {}
    count: dict[str, float] = {}
    scale = timeline.step_seconds / step if step else 0.0
    for resource, share in zip(built.program.resources, timeline.utilization.tolist(), strict=True):
        name = name_of(resource.kind)
        total[name] = total.get(name, 0.0) + share * resource.members * scale
        count[name] = count.get(name, 0.0) + resource.members
    use = dict.fromkeys(ALWAYS, 0.0) | {name: total[name] / count[name] for name in total}
    use["tensor_core"] = _share(executed_flops(built, timeline), peak_flops(built) * step)
    use["hbm"] = _share(_sum_over_ranks(built, timeline, "hbm_bytes"), _hbm_bandwidth(built) * step)
    return use


def name_of(kind: str) -> str:
    """What users call a kind of resource: both directions of a link are one."""
    kind = kind.removesuffix("_out").removesuffix("_in")
    return NAMES.get(kind, kind)


def executed_flops(built: Built, timeline: Timeline) -> float:
    """Matrix FLOPs of the step over all ranks, recomputation included, by the model's counting rules."""
    return _sum_over_ranks(built, timeline, "flops")


def peak_flops(built: Built) -> float:
    """Dense peak FLOP/s of all ranks together, in the type that GEMMs compute in."""
    precision = built.setting.workload.precision
    return sum(gpu.peak(precision) * count for gpu, count in _gpus(built))


def _hbm_bandwidth(built: Built) -> float:
    return float(sum(gpu.memory.bandwidth * count for gpu, count in _gpus(built)))


def _gpus(built: Built) -> list[tuple[GPU, int]]:
    """(GPU, number of ranks on one) by rank class."""
    topology = built.communicators.communicators.topology
    hardware = (
        topology.hardware[int(topology.gpu_hardware[rank])] for rank in built.communicators.representatives
    )
    return list(zip(hardware, built.program.members, strict=True))


def _sum_over_ranks(built: Built, timeline: Timeline, quantity: str) -> float:
    by_class = timeline.totals_by_class(quantity)
    total = sum(by_class.get(c, 0.0) * count for c, count in enumerate(built.program.members))
    return total / timeline.num_steps


def _share(amount: float, offered: float) -> float:
    return amount / offered if offered else 0.0
