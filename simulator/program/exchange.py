"""What do gradients look like on the wire, and what does it cost to make them so?

Each reduction of `sharding` becomes an exchange of encoded gradients. Codecs whose results can be added up stay encoded
all the way round; others make every rank gather what all have sent, and decode as many times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.program.program import Phase
from simulator.program.sharding import reductions
from simulator.program.track import COMPUTE_WEIGHT
from simulator.program.units import Unit
from simulator.workloads.operators import MemoryBound

if TYPE_CHECKING:
    from simulator.program.pricing import ClassPricing
    from simulator.program.setting import Setting


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of `size` bytes, for which `encoded` gradients are encoded before and `decoded` decoded after."""

    axis: str
    op: str
    size: float
    encoded: float = 0.0
    decoded: float = 0.0


def exchanges(setting: Setting, unit: Unit, is_last: bool, step: int = 0) -> list[list[Exchange]]:
    """What sums a unit's gradients (or averages its parameters): chains, each exchange after the one before."""
    chains = reductions(setting, unit, is_last, step)
    if setting.plan.synchronisation.averages_parameters:
        size = setting.averaged_size
        return [[Exchange(axis, op, count * size) for axis, op, count in chain] for chain in chains]
    return [[_encoded(setting, *one) for one in chain] for chain in chains]


def _encoded(setting: Setting, axis: str, op: str, count: float) -> Exchange:
    codec = setting.plan.synchronisation.compression
    size = count * setting.wire_size * codec.ratio
    if not setting.encodes_gradients:
        return Exchange(axis, op, size)
    if codec.reducible:
        return Exchange(
            axis, op, size, count, count if op == "all_reduce" else count / setting.grid.size(axis)
        )
    if op == "all_reduce":
        ranks = setting.grid.size(axis)
        return Exchange(axis, "all_gather", ranks * size, count, ranks * count)
    return Exchange(axis, "all_to_all", size, count, count)


def codec_phase(setting: Setting, pricing: ClassPricing, label: str, count: float) -> Phase | None:
    """The kernels that encode or decode `count` gradients, on a stream beside compute; None where they cost nothing.

    They share the GPU evenly with what computes.
    """
    seconds = sum(_codec_seconds(setting, pricing, label, count))
    if seconds <= 0.0:
        return None
    return Phase("dp", f"{label} gradients", seconds, ((pricing.gpu_resource, 1.0),), weight=COMPUTE_WEIGHT)


def _codec_seconds(setting: Setting, pricing: ClassPricing, label: str, count: float) -> Iterator[float]:
    wide, wire = setting.reduction_size, setting.wire_size
    if wire != wide:
        yield pricing.kernel_seconds(MemoryBound("cast", count * wide, count * wire))
    codec = setting.plan.synchronisation.compression
    rate = codec.encode if label == "encode" else codec.decode
    if rate is not None:
        yield count * wide / rate
