"""What operations cost one rank class: its GPU's kernels, its groups' collectives, its host's launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from simulator.costs.kernels import KernelCalibration, kernel_seconds
from simulator.costs.power import slowdown
from simulator.costs.software import SoftwareProfile
from simulator.hardware.gpu import GPU
from simulator.program.chains import Transfer
from simulator.program.communicators import FoldedCommunicators
from simulator.workloads.operation import Operation
from simulator.workloads.operators import Attention, Collective, Gemm, GroupedGemm, Kernel, MemoryBound


@dataclass(frozen=True)
class ClassPricing:
    """Implements `chains.Pricing` for one rank class.

    `gpus` are its own and those of the ranks it computes in lockstep with, at full clock; the slowest sets the pace of
    all. `clocks` are the factors by which the power limit of each slows matrix products; `limited` are the GPUs with
    these limits, as measured. `update_factor`: by which memory makes the optimizer's kernels slower than others.
    `known`: seconds of kernels on each of `gpus`, which classes with the same GPUs share.
    """

    rank_class: int
    gpus: tuple[tuple[GPU, KernelCalibration], ...]
    clocks: tuple[float, ...]
    software: SoftwareProfile
    communicators: FoldedCommunicators
    limited: tuple[tuple[GPU, KernelCalibration], ...] = ()
    update_factor: float = 1.0
    known: dict[Kernel, tuple[float, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def gpu_resource(self) -> int:
        """Resource ids start with the GPUs, one per rank class."""
        return self.rank_class

    @property
    def awaits_counts(self) -> bool:
        return self.software.awaits_token_counts

    def kernel_seconds(self, kernel: Kernel) -> float:
        fallback = self.software.unaligned_batches
        if fallback is not None and isinstance(kernel, Gemm) and kernel.batch > 1 and not kernel.aligned:
            return self._without_matrix_units(kernel, fallback)
        times = self.known.get(kernel)
        if times is None:
            times = tuple([kernel_seconds(kernel, gpu, calibration) for gpu, calibration in self.gpus])
            self.known[kernel] = times
        if not isinstance(kernel, MemoryBound):
            times = tuple([seconds * clock for seconds, clock in zip(times, self.clocks, strict=True)])
        elif kernel.op == "optimizer":
            times = tuple([seconds * self.update_factor for seconds in times])
        return max(times) / self.software.compute_efficiency

    def _without_matrix_units(self, kernel: Gemm, efficiency: float) -> float:
        slowest = min(gpu.peak("fp32") for gpu, _ in self.gpus)
        return kernel.flops / (efficiency * slowest)

    def _seconds_at_best(self, kernel: Gemm | GroupedGemm | Attention) -> float:
        """What the kernel's FLOPs take in the main loop of a large product on the first GPU."""
        gpu, calibration = self.gpus[0]
        measured = calibration.gemm.get(kernel.dtype) or calibration.gemm["bf16"]
        return kernel.flops / (measured.efficiency * gpu.peak(kernel.dtype))

    def transfer(self, collective: Collective) -> Transfer | None:
        return self.communicators.transfer(collective.axis, collective.op, collective.size, self.rank_class)

    def seconds(self, operations: Iterable[tuple[Operation, int]]) -> float:
        """Kernels and collectives (each so many times) one after the other."""
        total = 0.0
        for operation, count in operations:
            if isinstance(operation.what, Collective):
                transfer = self.transfer(operation.what)
                total += count * (transfer.seconds if transfer is not None else 0.0)
            else:
                total += count * self.kernel_seconds(operation.what)
        return total

    @property
    def blocking(self) -> bool:
        return self.software.blocking_launches

    def launch(self, kernels: int, calls: int, backward: bool) -> float:
        """Seconds the host takes for kernels of so many modules."""
        each = self.software.launch_backward if backward else self.software.launch
        return kernels * each + calls * self.software.call

    def under_power_limit(
        self,
        operations: Iterable[tuple[Operation, int]],
        limited: Sequence[tuple[GPU, KernelCalibration]],
    ) -> ClassPricing:
        """The same with the clocks that last while the rank repeats `operations` (each so many times).

        `limited` are `gpus` with their calibrations as measured, with what the power limit did to them.
        """
        return self.at_load(*self.load(operations), limited)

    def at_load(
        self,
        products: float,
        streaming: float,
        waiting: float,
        limited: Sequence[tuple[GPU, KernelCalibration]],
    ) -> ClassPricing:
        """The same with the clocks that last under the loads of `load`."""
        total = products + streaming + waiting
        if total <= 0.0:
            return self
        shares = products / total, streaming / total
        clocks = tuple([float(slowdown(gpu, calibration, *shares)) for gpu, calibration in limited])
        return replace(self, clocks=clocks, limited=tuple(limited))

    def load(self, operations: Iterable[tuple[Operation, int]]) -> tuple[float, float, float]:
        """Seconds at full clock in which the multipliers work, memory streams, and the GPU waits for others."""
        products = streaming = waiting = 0.0
        for operation, count in operations:
            if isinstance(operation.what, Collective):
                transfer = None if operation.asynchronous else self.transfer(operation.what)
                waiting += count * transfer.seconds if transfer is not None else 0.0
            elif isinstance(operation.what, MemoryBound):
                streaming += count * self.kernel_seconds(operation.what)
            else:
                seconds = self.kernel_seconds(operation.what)
                busy = min(seconds, self._seconds_at_best(operation.what))
                products += count * busy
                streaming += count * (
                    seconds - busy
                )  # multipliers that wait for operands draw like streaming
        return products, streaming, waiting
