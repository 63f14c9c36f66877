"""How much does the power limit slow a GPU that trains for hours? The clock falls until the average power fits.

Microbenchmarks of short kernels end before the power controller acts; those of long ones show by how much the clock
of a GPU that does nothing but multiply has to fall (`throttle` of the kernel calibration). In training the controller
sees the mean over a millisecond or so: products at the power they would draw, memory-bound operators at the power of
streaming, collectives and gaps at that of an idle GPU; a kernel that lasts longer (`throttle_time`) is all it sees.
Dynamic power goes with the cube of the clock (voltage follows frequency), so products, and all else that runs on the
same clock, take the cube root of the excess longer. Voltage has a floor: below the clock that needs no less (`floor` of
the GPU's power), dynamic power goes with the clock alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from simulator.costs.kernels import KernelCalibration
from simulator.hardware.gpu import GPU

Part = Any
"""A fraction of the time, or an array of such."""

EXPONENT = 3.0
"""Dynamic power over clock: frequency times the square of a voltage that rises with it."""

STREAMING = 0.7
"""Power of a memory-bound kernel as a fraction of the limit, where not stated (between the A100's 0.59 and the
H200's 0.82 in `hardware/gpus`)."""

LEAST = 0.1
"""Of an idle GPU's power: what is left for the clock at least, where the limit is hardly above it."""


@lru_cache(maxsize=64)
def rested(calibration: KernelCalibration) -> KernelCalibration:
    """The calibration at full clock: what every kernel takes before any power limit acts."""
    gemm = {name: p.model_copy(update={"throttle": 0.0}) for name, p in calibration.gemm.items()}
    attention = calibration.attention
    calm = {
        side: {size: p.model_copy(update={"throttle": 0.0}) for size, p in getattr(attention, side).items()}
        for side in ("forward", "backward", "serving")
    }
    name = f"{calibration.name} at full clock"
    return calibration.model_copy(
        update={"name": name, "gemm": gemm, "attention": attention.model_copy(update=calm)}
    )


def slowdown(gpu: GPU, calibration: KernelCalibration, products: Part, streaming: Part) -> Part:
    """Factor (at least 1) on the time of matrix products while multipliers are busy a fraction `products` of the time.

    `streaming` is the fraction in which operands or results move alone; the rest waits or communicates. 1 without
    power figures.
    """
    if gpu.power is None:
        return 1.0 + 0.0 * products
    limit = gpu.power.max
    stream = gpu.power.streaming or STREAMING * _own_limit(gpu, calibration)
    drawn = products * unlimited_power(gpu, calibration) + streaming * stream
    drawn += np.maximum(0.0, 1.0 - products - streaming) * gpu.power.idle
    excess = np.maximum(1.0, drawn / limit)
    factor = excess ** (1.0 / EXPONENT)
    if gpu.power.floor is None:
        return factor
    unlimited = unlimited_power(gpu, calibration)
    return factor * _below_floor(unlimited / excess, min(gpu.power.floor, unlimited), gpu.power.idle)


def _below_floor(allowed: Part, floor: float, idle: float) -> Part:
    """Factor over that of cubes where products may draw `allowed` watts.

    Below `floor` the clock goes with the watts above those of an `idle` GPU.
    """
    above = np.maximum(allowed - idle, LEAST * idle)
    cubes = np.minimum(allowed / floor, 1.0) ** (1.0 / EXPONENT)
    return np.maximum(1.0, cubes * (floor - idle) / above)


def unlimited_power(gpu: GPU, calibration: KernelCalibration) -> float:
    """Watts that matrix products would draw at full clock: what had to be taken off on the GPU measured, put back."""
    measured = calibration.gemm.get("bf16") or next(iter(calibration.gemm.values()))
    return _own_limit(gpu, calibration) * (1.0 + measured.throttle) ** EXPONENT


def _own_limit(gpu: GPU, calibration: KernelCalibration) -> float:
    """The limit that goes with the measured throttling.

    A part with the measured one's SMs and rates is the same chip, whatever limit it has been given; another one is
    taken to be as far above its own. 0 without power figures.
    """
    reference = _measured(calibration.gpu)
    if reference.power is not None and _same_chip(gpu, reference):
        return reference.power.max
    return gpu.power.max if gpu.power is not None else 0.0


def _same_chip(one: GPU, other: GPU) -> bool:
    return one.sms == other.sms and one.dense_peak == other.dense_peak


@lru_cache(maxsize=64)
def _measured(name: str) -> GPU:
    from simulator.description import load

    gpu: GPU = load("gpu", name)
    return gpu
