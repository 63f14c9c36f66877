"""What a layer costs one GPU at least, forward and backward, for one way of cutting it up: seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from simulator.costs.kernels import calibration_for, chip_of
from simulator.costs.power import rested
from simulator.hardware.gpu import GPU
from simulator.program.chains import Chain
from simulator.program.communicators import FoldedCommunicators
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.program.track import chain_of
from simulator.sweeps.alone import GridTransfers
from simulator.workloads.layers import Layer, Operation, Shard
from simulator.workloads.operators import Collective, MemoryBound

Floats = NDArray[np.float64]

KERNELS = ("compute", "recompute")
QUANTITIES = (
    "forward",  # seconds of the chain on the compute lane
    "backward",
    "kernels",  # seconds of forward and backward in which kernels run
    "limited",  # ... of those, matrix products, which the power limit slows
    "forward_limited",  # seconds by which forward grows at least, per unit of the clock's factor
    "backward_limited",
    "multiplying",  # seconds for which the power limit counts multipliers, memory, and waiting for others
    "streaming",
    "waiting",
    "forward_host",  # seconds in which the host launches it
    "backward_host",
    "forward_lead",  # how far ahead of it the host must be
    "backward_lead",
    "forward_arrival",  # seconds for which a boundary tensor that enters is gathered over tp
    "backward_arrival",
    "sent",  # bytes handed on to the next stage
)
BYTES = (
    "activations",  # bytes kept from forward to backward
    "transient",  # bytes that live while backward runs
)


@dataclass(frozen=True)
class LayerPrices:
    """One row per quantity of QUANTITIES, one column per kind of layer; seconds and bytes of one micro-batch."""

    values: Floats

    @staticmethod
    def of(
        setting: Setting, kinds: Sequence[Layer], gpus: Sequence[GPU], transfers: GridTransfers
    ) -> LayerPrices:
        """The least over the kinds of GPU."""
        pricings = [pricing_on(gpu, setting, transfers) for gpu in gpus]
        columns = [[_layer(layer, setting, pricing) for layer in kinds] for pricing in pricings]
        return LayerPrices(np.array(columns).min(axis=0).T)


def layer_bytes(setting: Setting, kinds: Sequence[Layer]) -> Floats:
    """One row per quantity of BYTES, one column per kind of layer."""
    shard = setting.shard
    return np.array([[layer.activation_bytes(shard), layer.transient_bytes(shard)] for layer in kinds]).T


def pricing_on(gpu: GPU, setting: Setting, transfers: GridTransfers) -> ClassPricing:
    """The program's own pricing, with collectives at their best."""
    stand_in = cast(FoldedCommunicators, transfers)
    chip = cast(GPU, chip_of(gpu))  # all that kernels need of it
    at_full_clock = ((chip, rested(calibration_for(gpu))),)
    sms = setting.plan.experts.exchange_sms
    return ClassPricing(0, at_full_clock, (1.0,), setting.software, stand_in, exchange_sms=sms)


def _layer(layer: Layer, setting: Setting, pricing: ClassPricing) -> list[float]:
    shard = setting.shard
    forward, backward = (_priced(layer, shard, pricing, way) for way in (0, 1))
    limited = forward.limited + backward.limited
    return [
        forward.seconds,
        backward.seconds,
        forward.kernels + backward.kernels,
        limited,
        _growth(layer, shard, pricing, forward, 0),
        _growth(layer, shard, pricing, backward, 1),
        forward.multiplying + backward.multiplying,
        forward.streaming + backward.streaming,
        forward.waiting + backward.waiting,
        forward.host,
        backward.host,
        forward.lead,
        backward.lead,
        _arrival(layer.input_bytes(shard), setting, pricing) if layer.width else 0.0,
        _arrival(layer.output_bytes(shard), setting, pricing),
        layer.output_bytes(shard) / setting.scatter,
    ]


class Priced(NamedTuple):
    """A layer's forward, or its backward with what is computed again: seconds of one micro-batch.

    Every one grows by the same amount with every step of a ring but the first and the last; `launch_bound` by no less.
    """

    seconds: float  # of the chain on the compute lane
    host: float
    launch_bound: float
    kernels: float
    limited: float  # of matrix products
    multiplying: float
    streaming: float
    waiting: float

    @property
    def lead(self) -> float:
        """How long the host must be at work before the chain may start so that no kernel is awaited, at least."""
        return max(0.0, self.launch_bound - self.seconds)


FEW_STEPS = 4
"""Steps of a ring after which every further one costs as much as the one before."""


def _priced(layer: Layer, shard: Shard, pricing: ClassPricing, way: int) -> Priced:
    """Forward (0) or backward (1)."""
    return Priced(*_of_ring(lambda few: _priced_in_full(layer, few, pricing, way), layer, shard))


def _of_ring(measure: Callable[[Shard], Sequence[float]], layer: Layer, shard: Shard) -> Iterator[float]:
    """What `measure` makes of the layer: of a long ring, which has thousands of steps, by what one more step adds."""
    few, more = (replace(shard, ring_steps=steps) for steps in (FEW_STEPS, FEW_STEPS + 1))
    rest = shard.cp // shard.ulysses - FEW_STEPS
    if rest <= 1 or len(layer.forward(few)) == len(layer.forward(more)):
        yield from measure(shard)
    else:
        for one, other in zip(measure(few), measure(more), strict=True):
            yield one + rest * (other - one)


def _priced_in_full(layer: Layer, shard: Shard, pricing: ClassPricing, way: int) -> Priced:
    chain, operations = _chain(layer, shard, pricing, way), _operations(layer, shard, way)
    multiplying, streaming, _ = pricing.load((one, 1) for one in operations)
    return Priced(
        chain.seconds,
        chain.host,
        chain.seconds + chain.lead,
        sum(phase.work for phase in chain.phases if phase.kind in KERNELS),
        _limited_seconds(operations, pricing),
        multiplying,
        streaming,
        _waiting(operations, pricing),
    )


def _operations(layer: Layer, shard: Shard, way: int) -> tuple[Operation, ...]:
    return layer.forward(shard) if way == 0 else (*layer.recompute(shard), *layer.backward(shard))


def _chain(layer: Layer, shard: Shard, pricing: ClassPricing, way: int) -> Chain:
    if way == 0:
        return chain_of(layer.forward(shard), pricing, "compute", False)
    again = chain_of(layer.recompute(shard), pricing, "recompute", False)
    return again + chain_of(layer.backward(shard), pricing, "compute", True)


def _limited_seconds(operations: Sequence[Operation], pricing: ClassPricing) -> float:
    """Of the matrix products, which the power limit slows."""
    return sum(
        pricing.kernel_seconds(one.what)
        for one in operations
        if not isinstance(one.what, Collective | MemoryBound)
    )


CLOCKS = (1.02, 1.3)
"""Factors at which chains are priced again, to see how much of slower products hides behind collectives."""


def _growth(layer: Layer, shard: Shard, pricing: ClassPricing, at_full_clock: Priced, way: int) -> float:
    """By how much the chain grows at least per unit of the clock's factor above 1."""
    if not any(one.asynchronous for one in _operations(layer, replace(shard, ring_steps=FEW_STEPS), way)):
        return at_full_clock.limited
    slower = [replace(pricing, clocks=(clock,)) for clock in CLOCKS]
    seconds = _of_ring(lambda few: [_chain(layer, few, one, way).seconds for one in slower], layer, shard)
    growths = (
        (each - at_full_clock.seconds) / (clock - 1.0) for each, clock in zip(seconds, CLOCKS, strict=True)
    )
    return max(0.0, min(growths))


def _waiting(operations: Sequence[Operation], pricing: ClassPricing) -> float:
    """Seconds of collectives that stop kernels, while all groups communicate at once: an upper bound."""
    transfers = cast(GridTransfers, pricing.communicators)
    return sum(
        transfers.crowded_seconds(one.what.axis, one.what.op, one.what.size)
        for one in operations
        if isinstance(one.what, Collective) and not one.asynchronous
    )


def _arrival(size: float, setting: Setting, pricing: ClassPricing) -> float:
    """A boundary tensor that was cut over tp for the way is gathered first."""
    if setting.scatter == 1 or not size:
        return 0.0
    gather = Operation("gather boundary", Collective("all_gather", "tp", size))
    return chain_of([gather], pricing, "compute", False).seconds
