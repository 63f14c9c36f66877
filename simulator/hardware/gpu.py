"""What one GPU is: its peaks, memory, links, power and price (`hardware/gpus/*.yaml`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.base import Description, Named
from simulator.description.quantities import (
    Bytes,
    BytesPerSecond,
    Dollars,
    FlopsPerSecond,
    Hertz,
    Seconds,
    Watts,
)

Architecture = Literal[
    "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "tpu", "cpu"
]
Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]


class MemoryTier(Description):
    """Further memory that a GPU reaches more slowly (CXL, a memory node)."""

    capacity: Bytes = Field(gt=0, description="Bytes per GPU.")
    bandwidth: BytesPerSecond = Field(gt=0, description="Per GPU, reads and writes together.")
    kind: str = Field(default="CXL", description="Technology; not interpreted.")
    placement: Literal["alike", "update_first"] = Field(
        default="alike",
        description="What lies in it of a job that needs it: a part of everything (COMET); or the optimizer's state, "
        "which only the update uses, and of the rest a part of everything.",
    )


class Memory(Description):
    """A GPU's own memory."""

    capacity: Bytes = Field(gt=0, description="Bytes the device has, as its driver reports them.")
    bandwidth: BytesPerSecond = Field(description="Peak bandwidth, reads and writes together.")
    kind: str = Field(
        default="HBM", description="Memory technology (HBM2e, HBM3, GDDR6, ...); not interpreted."
    )
    expansion: MemoryTier | None = Field(
        default=None,
        description="What holds the rest of a job that is larger than this memory; null if nothing does.",
    )

    @property
    def total(self) -> float:
        """Bytes of both tiers."""
        return self.capacity + (0.0 if self.expansion is None else self.expansion.capacity)

    def bandwidth_for(self, needed: float, state: float = 0.0) -> float:
        """Bytes/s of a job of `needed` bytes that are used alike: its share in the expansion moves at that rate.

        Kadiyala et al. 2022 (COMET, arXiv 2211.16648). `state` of the bytes only the update uses.
        """
        rest = needed - self._set_aside(needed, state)
        return self._blended(1.0 - self.capacity / rest if rest > self.capacity else 0.0)

    def update_bandwidth(self, needed: float, state: float) -> float:
        """Bytes/s at which the update reaches its `state`."""
        aside = self._set_aside(needed, state)
        return self._blended(aside / state) if aside else self.bandwidth_for(needed, state)

    def _set_aside(self, needed: float, state: float) -> float:
        """Bytes of the update's state that lie in the expansion so that less of the rest does."""
        if self.expansion is None or self.expansion.placement == "alike":
            return 0.0
        return min(state, max(0.0, needed - self.capacity))

    def _blended(self, outside: float) -> float:
        """Bytes/s of what lies in the expansion with that share."""
        if self.expansion is None or not outside:
            return self.bandwidth
        return 1.0 / ((1.0 - outside) / self.bandwidth + outside / self.expansion.bandwidth)


class ScaleUp(Description):
    """The fast links between GPUs of one node (NVLink, xGMI, ICI)."""

    kind: str = Field(description="Link generation (nvlink3, xgmi, ...); picks the collective calibration.")
    bandwidth: BytesPerSecond = Field(description="All links of one GPU together, per direction.")
    lanes: int | None = Field(default=None, ge=1, description="How many links that bandwidth is made of.")


class HostLink(Description):
    """The link between a GPU and its host."""

    kind: str = Field(description="Bus (pcie4-x16, nvlink-c2c, ...); not interpreted.")
    bandwidth: BytesPerSecond = Field(description="Bandwidth per direction.")


class GpuPower(Description):
    """What one GPU draws."""

    idle: Watts = Field(description="Drawn when nothing runs.")
    max: Watts = Field(gt=0, description="The board's power limit.")
    streaming: Watts | None = Field(
        None,
        description="Drawn by a kernel that streams from memory at full bandwidth; null: 0.7 of the limit.",
    )
    floor: Watts | None = Field(
        default=None,
        description="Drawn by matrix products at the clock below which the voltage falls no further, so that power "
        "falls with the clock alone; not reached if left out.",
    )


class GPU(Named):
    """One GPU (or any other accelerator)."""

    vendor: str = Field(description="Who makes it.")
    architecture: Architecture = Field(description="Generation; borrowed calibrations go by it.")
    sms: int = Field(ge=1, description="Streaming multiprocessors (compute units) that work is spread over.")
    clock: Hertz = Field(description="Boost clock, at which the dense peaks are stated.")
    dense_peak: dict[Dtype, FlopsPerSecond] = Field(
        min_length=1, description="Peak matrix rate per number format, without sparsity."
    )
    memory: Memory = Field(description="Device memory.")
    scale_up: ScaleUp | None = Field(
        default=None, description="Links to the GPUs of the same node; null if none."
    )
    host_link: HostLink = Field(description="Link to the host.")
    launch: Seconds = Field(description="Host time to launch one kernel (typical, eager framework).")
    power: GpuPower | None = Field(default=None, description="Power draw; null when unknown.")
    price: Dollars | None = Field(default=None, description="Price of one; null when not public.")
    calibration: str | None = Field(
        default=None,
        description="Kernel calibration under hardware/calibrations/kernels; null: borrowed from the "
        "nearest GPU of the same architecture.",
    )

    def peak(self, dtype: str) -> float:
        """Dense peak FLOP/s for `dtype`. Raises ValueError where the GPU has no such units."""
        for known, peak in self.dense_peak.items():
            if known == dtype:
                return peak
        raise ValueError(
            f"{self.name or 'this GPU'} has no {dtype} peak (it has {', '.join(self.dense_peak)})"
        )
