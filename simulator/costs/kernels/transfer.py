"""Which parameters stand for a GPU: its own, or those of the nearest architecture measured?"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from simulator.costs.kernels.calibration import GemmParameters, KernelCalibration
from simulator.description import load

if TYPE_CHECKING:
    from simulator.hardware.gpu import GPU

# Parameters are relative to datasheet rates, so they carry over; the larger error shows in `transferred_from`.
NEAREST = {
    "pascal": "p100-pcie",
    "volta": "v100-sxm2",
    "turing": "v100-sxm2",
    "ampere": "a100-sxm",
    "ada": "l40s",
    "hopper": "h100-sxm",
    "blackwell": "b200",
    "cdna2": "a100-sxm",
    "cdna3": "h100-sxm",
    "tpu": "tpu-v5p",
}

STAND_INS = {
    "mxfp8": ("fp8",),
    "nvfp4": ("mxfp8", "fp8"),
    "fp8": ("mxfp8",),
    "tf32": ("fp32",),
    "bf16": ("fp32",),
    "fp16": ("bf16", "fp32"),
}
"""Number format -> measured ones whose parameters are nearer to it than those of bf16.

fp32 has parameters of its own only where it was measured without matrix units: on Volta and Pascal, which run TF32 as
fp32, and Pascal 16 bits on the same cores.
"""


def calibration_for(gpu: GPU) -> KernelCalibration:
    """The calibration that a GPU names, else its architecture's; `transferred_from` set if measured on another.

    ValueError for an architecture that no measurement is near to, DescriptionError for an unknown name.
    """
    if gpu.architecture not in NEAREST and not gpu.calibration:
        raise ValueError(f"no kernel calibration is near {gpu.architecture!r} (known: {', '.join(NEAREST)})")
    found = load_calibration(gpu.calibration or NEAREST[gpu.architecture])
    if found.gpu == gpu.name or found.transferred_from:
        return found
    return found.model_copy(update={"transferred_from": found.gpu})


@lru_cache(maxsize=64)
def load_calibration(name: str) -> KernelCalibration:
    """The calibration `name` of the catalogue (or a path). Raises DescriptionError where there is none."""
    calibration: KernelCalibration = load("kernels", name)
    return calibration


def gemm_parameters(calibration: KernelCalibration, dtype: str) -> GemmParameters:
    """The GEMM parameters for a number format: its own, its stand-in's, else those of bf16."""
    for name in (dtype, *STAND_INS.get(dtype, ())):
        if name in calibration.gemm:
            return calibration.gemm[name]
    return calibration.gemm["bf16"]
