"""How long does a GEMM take whose one operand is never written out: the windows of a convolution?

Products and tiles are those of the GEMM of that shape; but windows overlap, so that what memory moves is each pixel
once, and the windows come from cache: to the tiles, memory seems faster by how often a pixel is used.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.costs.kernels.calibration import GemmParameters
from simulator.costs.kernels.chip import Chip, element_bytes
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.workloads.operators import Gemm


def implicit_gemm_seconds(kernel: Gemm, chip: Chip, parameters: GemmParameters) -> float:
    """Seconds of a GEMM whose A holds every element `reuse` times."""
    cached = replace(chip, bandwidth=chip.bandwidth * kernel.reuse)
    tiles = gemm_seconds(
        kernel.m,
        kernel.n,
        kernel.k,
        chip=cached,
        parameters=parameters,
        dtype=kernel.dtype,
        batch=kernel.batch,
    )
    elements = kernel.m * kernel.k / kernel.reuse + kernel.n * (kernel.k + kernel.m)
    size = kernel.batch * elements * element_bytes(kernel.dtype)
    return max(float(tiles), size / (parameters.memory_efficiency * chip.bandwidth))
