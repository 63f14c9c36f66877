"""Where do the FLOP/s between the GPUs' peak and what the model gets of it go? Losses that sum exactly.

Each loss is GPU time, weighted by the GPU's peak and averaged over all GPUs, as a share of the step. Peak minus all
losses is the MFU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.results.breakdown import breakdown, critical_class

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction

MEANINGS = {
    "kernel efficiency": "matrix products and attention below peak",
    "memory-bound operators": "operators without a matrix product",
    "recompute": "forward work done again before backward",
    "padding": "kernels' work on tokens that belong to no document",
    "tp": "tensor-parallel collectives",
    "cp": "context-parallel collectives",
    "ep": "expert-parallel collectives",
    "pp": "pipeline transfers",
    "dp": "gradients and parameters of other replicas",
    "launch": "waiting for the host to launch kernels",
    "optimizer": "the update",
    "bubble": "a pipeline that fills and drains",
    "imbalance": "stages that wait for a busier one",
    "data": "waiting for samples",
    "checkpoint": "waiting for a checkpoint",
    "offload": "waiting for copies to or from the host",
    "other": "the slowest of many equal ranks, and the rest",
}


@dataclass(frozen=True)
class Loss:
    """GPU seconds per GPU and step, and their share of the step; below zero where less is done than is counted."""

    name: str
    seconds: float
    share: float

    @property
    def meaning(self) -> str:
        return MEANINGS[self.name]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "seconds": self.seconds, "share": self.share, "meaning": self.meaning}


def waterfall(prediction: Prediction) -> list[Loss]:
    """The losses, from kernels outwards; 1 - their shares = the MFU."""
    step = prediction.step_time_s
    shares = dict.fromkeys(MEANINGS, 0.0)
    for weight, seconds in _by_class(prediction):
        for name, amount in seconds.items():
            shares[name] += weight * amount / step
    # What kernels are below peak is what remains: the model's FLOPs at peak are the MFU.
    shares["kernel efficiency"] = (
        1.0 - prediction.mfu - sum(share for name, share in shares.items() if name != "kernel efficiency")
    )
    return [Loss(name, share * step, share) for name, share in shares.items()]


def _by_class(prediction: Prediction) -> Iterator[tuple[float, dict[str, float]]]:
    """(share of the peak of all GPUs, seconds by loss) of each rank class."""
    program, timeline = prediction.built.program, prediction.run
    critical = breakdown(program, timeline, critical_class(program, timeline))
    waiting = prediction.step_time_s - timeline.step_seconds
    peaks = _peaks(prediction)
    total = sum(peak * count for peak, count in zip(peaks, program.members, strict=True))
    for rank_class, (peak, count) in enumerate(zip(peaks, program.members, strict=True)):
        found = breakdown(program, timeline, rank_class)
        seconds = {kind: amount for kind, amount in found.items() if kind not in ("compute", "bubble")}
        seconds["memory-bound operators"] = _without_products(prediction, rank_class)
        seconds["bubble"] = min(found["bubble"], critical["bubble"])
        seconds["imbalance"] = found["bubble"] - seconds["bubble"]
        seconds["other"] += waiting
        yield peak * count / total, seconds


def _peaks(prediction: Prediction) -> list[float]:
    """Peak FLOP/s of each rank class's GPU, in the type that GEMMs compute in."""
    communicators = prediction.built.communicators
    topology, precision = communicators.communicators.topology, prediction.workload.precision
    return [
        topology.hardware[int(topology.gpu_hardware[rank])].peak(precision)
        for rank in communicators.representatives.tolist()
    ]


def _without_products(prediction: Prediction, rank_class: int) -> float:
    """Seconds of compute in which no matrix product runs."""
    program, timeline = prediction.built.program, prediction.run
    tasks = [
        task
        for lane, queue in zip(program.lanes, program.queues, strict=True)
        if lane.name == "compute" and lane.rank_class == rank_class
        for task in queue
    ]
    total = sum(
        seconds
        for phase, seconds, _ in timeline.phase_seconds(tasks)
        if phase.kind == "compute" and not phase.flops
    )
    return total / timeline.num_steps
