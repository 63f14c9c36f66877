"""How long does an operator limited by memory take? Its bytes over achieved bandwidth, plus a latency per kernel.

    time = kernels * latency + (bytes + bytes / 2 * missed) / (efficiency[operator] * bandwidth)

Streaming operators come close to the bandwidth; reductions (norms), gathers (embeddings) and what else reads its
operands more than once do not, which their efficiency, counted on the bytes they must move, expresses. A norm reads
each row a second time when it knows its mean: `missed` is the part of that which the caches no longer hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.costs.kernels.calibration import MemoryParameters, QuantizeParameters
from simulator.costs.kernels.chip import Chip, element_bytes


def memory_bound_seconds(
    op: str,
    size: ArrayLike,
    chip: Chip,
    parameters: MemoryParameters,
    kernels: ArrayLike = 1,
    row: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """Seconds on the GPU of an operator that moves `size` bytes, host launches not included.

    `row`: bytes of a row where it reads rows twice (half of `size`, then), else 0.
    """
    again = np.asarray(size, float) / 2 * missed(row, parameters)
    moving = (np.asarray(size, float) + again) / (efficiency_of(op, parameters) * chip.bandwidth)
    result: NDArray[np.float64] = np.asarray(kernels, float) * parameters.latency + moving
    return result


def missed(row: ArrayLike, parameters: MemoryParameters) -> NDArray[np.float64]:
    """Fraction of rows of so many bytes that has left the caches before its second reading."""
    if parameters.kept_row is None:
        return np.zeros_like(np.asarray(row, float))
    kept = parameters.kept_row
    return 1.0 - kept / np.maximum(np.asarray(row, float), kept)


def efficiency_of(op: str, parameters: MemoryParameters) -> float:
    """Of memory bandwidth: the operator's own, else its forward pass's, else that of elementwise operators."""
    table = parameters.efficiency
    for name in (op, op.removesuffix("_backward")):
        if name in table:
            return table[name]
    return table["elementwise"]


def quantize_seconds(
    elements: ArrayLike, dtype: str, chip: Chip, parameters: QuantizeParameters
) -> NDArray[np.float64]:
    """Seconds of turning 16-bit activations into `dtype`, scales included."""
    size = np.asarray(elements, float) * (2.0 + element_bytes(dtype))
    result: NDArray[np.float64] = parameters.latency + size / (parameters.efficiency * chip.bandwidth)
    return result
