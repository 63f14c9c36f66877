"""What a layer costs one GPU at least, forward and backward, for one way of cutting it up: seconds and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simulator.costs.kernels import calibration_for, chip_of
from simulator.costs.power import rested
from simulator.hardware.gpu import GPU
from simulator.program.chains import Chain, chain_of
from simulator.program.communicators import FoldedCommunicators
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.sweeps.alone import GridTransfers
from simulator.workloads.layers import Layer, Operation
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
    return ClassPricing(0, at_full_clock, (1.0,), setting.software, stand_in)


def _layer(layer: Layer, setting: Setting, pricing: ClassPricing) -> list[float]:
    shard = setting.shard
    operations = [*layer.forward(shard), *layer.recompute(shard), *layer.backward(shard)]
    forward, backward = (_chain(layer, setting, pricing, way) for way in (0, 1))
    multiplying, streaming, _ = pricing.load((one, 1) for one in operations)
    return [
        forward.seconds,
        backward.seconds,
        _kernel_seconds(forward) + _kernel_seconds(backward),
        _limited_seconds(operations, pricing),
        *_growth(layer, setting, pricing, (forward, backward)),
        multiplying,
        streaming,
        _waiting(operations, pricing),
        forward.host,
        backward.host,
        forward.lead,
        backward.lead,
        _arrival(layer.input_bytes(shard), setting, pricing) if layer.width else 0.0,
        _arrival(layer.output_bytes(shard), setting, pricing),
        layer.output_bytes(shard) / setting.scatter,
    ]


def _chain(layer: Layer, setting: Setting, pricing: ClassPricing, way: int) -> Chain:
    """A layer's forward (0), or backward with what is computed again (1)."""
    shard = setting.shard
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


def _growth(
    layer: Layer, setting: Setting, pricing: ClassPricing, at_full_clock: tuple[Chain, Chain]
) -> list[float]:
    """By how much forward and backward grow at least per unit of the clock's factor above 1."""
    shard = setting.shard
    forward, backward = layer.forward(shard), layer.backward(shard)
    again = layer.recompute(shard)
    if any(one.asynchronous for one in forward):
        growths = [_slope(layer, setting, pricing, at_full_clock, way) for way in (0, 1)]
    elif any(one.asynchronous for one in (*again, *backward)):
        growths = [_limited_seconds(forward, pricing), _slope(layer, setting, pricing, at_full_clock, 1)]
    else:
        growths = [_limited_seconds(forward, pricing), _limited_seconds((*again, *backward), pricing)]
    return growths


def _slope(
    layer: Layer, setting: Setting, pricing: ClassPricing, at_full_clock: tuple[Chain, Chain], way: int
) -> float:
    """Of a chain of which some collectives run beside kernels; `way`: 0 forward, 1 backward."""
    slower = [_chain(layer, setting, replace(pricing, clocks=(clock,)), way).seconds for clock in CLOCKS]
    full = at_full_clock[way].seconds
    return max(
        0.0, min((seconds - full) / (clock - 1.0) for seconds, clock in zip(slower, CLOCKS, strict=True))
    )


def _waiting(operations: Sequence[Operation], pricing: ClassPricing) -> float:
    """Seconds of collectives that stop kernels, while all groups communicate at once: an upper bound."""
    transfers = cast(GridTransfers, pricing.communicators)
    return sum(
        transfers.crowded_seconds(one.what.axis, one.what.op, one.what.size)
        for one in operations
        if isinstance(one.what, Collective) and not one.asynchronous
    )


def _kernel_seconds(chain: Chain) -> float:
    return sum(phase.work for phase in chain.phases if phase.kind in KERNELS)


def _arrival(size: float, setting: Setting, pricing: ClassPricing) -> float:
    """A boundary tensor that was cut over tp for the way is gathered first."""
    if setting.scatter == 1 or not size:
        return 0.0
    gather = Operation("gather boundary", Collective("all_gather", "tp", size))
    return chain_of([gather], pricing, "compute", False).seconds
