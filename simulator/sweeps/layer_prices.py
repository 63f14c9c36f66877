"""What a layer costs one GPU at least, forward and backward, for one way of cutting it up: seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simulator.costs.kernels import calibration_for
from simulator.costs.power import rested
from simulator.hardware.gpu import GPU
from simulator.program.chains import Chain, chain_of
from simulator.program.communicators import FoldedCommunicators
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.sweeps.alone import GridTransfers
from simulator.workloads.layers import Layer, Operation
from simulator.workloads.operators import Collective

Floats = NDArray[np.float64]

KERNELS = ("compute", "recompute")
QUANTITIES = (
    "forward",  # seconds of the chain on the compute lane
    "backward",
    "kernels",  # seconds of forward and backward in which kernels run
    "forward_host",  # seconds in which the host launches it
    "backward_host",
    "forward_lead",  # how far ahead of it the host must be
    "backward_lead",
    "forward_arrival",  # seconds for which a boundary tensor that enters is gathered over tp
    "backward_arrival",
    "activations",  # bytes kept from forward to backward
    "transient",  # bytes that live while backward runs
    "sent",  # bytes handed on to the next stage
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


def pricing_on(gpu: GPU, setting: Setting, transfers: GridTransfers) -> ClassPricing:
    """The program's own pricing, with collectives at their best."""
    stand_in = cast(FoldedCommunicators, transfers)
    at_full_clock = ((gpu, rested(calibration_for(gpu))),)
    return ClassPricing(0, at_full_clock, (1.0,), setting.software, stand_in)


def _layer(layer: Layer, setting: Setting, pricing: ClassPricing) -> list[float]:
    shard = setting.shard
    forward = chain_of(layer.forward(shard), pricing, "compute", False)
    again = chain_of(layer.recompute(shard), pricing, "recompute", False)
    backward = again + chain_of(layer.backward(shard), pricing, "compute", True)
    return [
        forward.seconds,
        backward.seconds,
        _kernel_seconds(forward) + _kernel_seconds(backward),
        forward.host,
        backward.host,
        forward.lead,
        backward.lead,
        _arrival(layer.input_bytes(shard), setting, pricing) if layer.width else 0.0,
        _arrival(layer.output_bytes(shard), setting, pricing),
        layer.activation_bytes(shard),
        layer.transient_bytes(shard),
        layer.output_bytes(shard) / setting.scatter,
    ]


def _kernel_seconds(chain: Chain) -> float:
    return sum(phase.work for phase in chain.phases if phase.kind in KERNELS)


def _arrival(size: float, setting: Setting, pricing: ClassPricing) -> float:
    """A boundary tensor that was cut over tp for the way is gathered first."""
    if setting.scatter == 1 or not size:
        return 0.0
    gather = Operation("gather boundary", Collective("all_gather", "tp", size))
    return chain_of([gather], pricing, "compute", False).seconds


Price = Callable[[], LayerPrices]
