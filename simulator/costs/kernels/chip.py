"""What the kernel models need to know of a GPU: SMs, peak rate per number format and memory bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulator.workloads.operators import DTYPE_BYTES

# A format that a chip has no rate of its own for runs at the rate of the next one that it has.
FALLBACK = {
    "bf16": ("fp16",),
    "fp16": ("bf16",),
    "tf32": ("fp32",),
    "mxfp8": ("fp8",),
    "nvfp4": ("mxfp8", "fp8"),
}


@dataclass(frozen=True, slots=True)
class Chip:
    """Datasheet rates of one GPU: `peaks` in FLOP/s (dense) by format, `bandwidth` of memory in bytes/s."""

    sms: int
    peaks: tuple[tuple[str, float], ...]
    bandwidth: float

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s in `dtype`; ValueError if the chip cannot compute in it (an unknown rate is not guessed)."""
        rates = dict(self.peaks)
        for name in (dtype, *FALLBACK.get(dtype, ())):
            if name in rates:
                return rates[name]
        raise ValueError(f"this GPU has no {dtype} rate (it has {', '.join(sorted(rates))})")


def chip_of(gpu: Any) -> Chip:
    """The kernel models' view of a described GPU (`simulator.hardware.gpu.GPU`), hashable and small."""
    if isinstance(gpu, Chip):
        return gpu
    return Chip(
        sms=int(gpu.sms),
        peaks=tuple(sorted((name, float(rate)) for name, rate in gpu.dense_peak.items() if rate)),
        bandwidth=float(gpu.memory.bandwidth),
    )


def element_bytes(dtype: str) -> float:
    """Bytes of one element; ValueError names the known formats."""
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"unknown number format {dtype!r} (known: {', '.join(DTYPE_BYTES)})")
    return DTYPE_BYTES[dtype]
