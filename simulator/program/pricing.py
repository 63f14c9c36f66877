"""What operations cost one rank class: its GPU's kernels, its groups' collectives, its host's launches."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from simulator.costs.kernels import KernelCalibration, kernel_seconds
from simulator.costs.kernels.gemm import sustained
from simulator.costs.kernels.transfer import gemm_parameters
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
    all. `clocks` are the factors by which the power limit of each slows matrix products on average; `limited` are the
    GPUs with these limits, as measured. `update_factor`: by which memory makes the optimizer's kernels slower than
    others. `exchange_sms`: that exchanges with experts hold, where products keep off them. `known`: seconds of kernels
    on each of `gpus`, which classes with the same GPUs share; `lasting`: seconds of kernels under the limits.
    """

    rank_class: int
    gpus: tuple[tuple[GPU, KernelCalibration], ...]
    clocks: tuple[float, ...]
    software: SoftwareProfile
    communicators: FoldedCommunicators
    limited: tuple[tuple[GPU, KernelCalibration], ...] = ()
    update_factor: float = 1.0
    exchange_sms: int | None = None
    known: dict[Kernel, tuple[float, ...]] = field(default_factory=dict, compare=False, repr=False)
    lasting: dict[Kernel, float] = field(default_factory=dict, init=False, compare=False, repr=False)
    transfers: dict[tuple[str, str, float], Transfer | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def gpu_resource(self) -> int:
        """Resource ids start with the GPUs, one per rank class."""
        return self.rank_class

    @property
    def pace(self) -> Hashable:
        """Equal for the classes of a step whose kernels take the same time."""
        return id(self.known), self.clocks, self.update_factor, self.exchange_sms

    @property
    def awaits_counts(self) -> bool:
        return self.software.awaits_token_counts

    def kernel_seconds(self, kernel: Kernel) -> float:
        fallback = self.software.unaligned_batches
        if fallback is not None and isinstance(kernel, Gemm) and kernel.batch > 1 and not kernel.aligned:
            return self._without_matrix_units(kernel, fallback)
        if isinstance(kernel, MemoryBound):
            factor = self.update_factor if kernel.op == "optimizer" else 1.0
            return factor * max(self._at_full_clock(kernel))
        if kernel not in self.lasting:
            times = [
                seconds * self._slower(n, kernel, seconds)
                for n, seconds in enumerate(self._at_full_clock(kernel))
            ]
            self.lasting[kernel] = float(max(times))
        return self.lasting[kernel]

    def _at_full_clock(self, kernel: Kernel) -> tuple[float, ...]:
        """Seconds on each of `gpus` before any power limit acts."""
        times = self.known.get(kernel)
        if times is None:
            times = tuple([kernel_seconds(kernel, gpu, calibration) for gpu, calibration in self.gpus])
            self.known[kernel] = times
        return tuple([seconds / self.software.compute_efficiency for seconds in times])

    def _slower(self, number: int, kernel: Gemm | GroupedGemm | Attention, seconds: float) -> float:
        """Factor on a kernel of `seconds` under the limit of one of `gpus`.

        The controller acts after about a millisecond: a kernel that lasts longer is slowed for what it draws itself,
        a shorter one for what the GPU draws on average.
        """
        mean = self.clocks[number]
        if not self.limited:
            return mean
        gpu, calibration = self.limited[number]
        busy = min(1.0, self._seconds_at_best(kernel) / seconds)
        alone = float(slowdown(gpu, calibration, busy, 1.0 - busy))
        return mean + max(0.0, alone - mean) * sustained(
            seconds, gemm_parameters(calibration, kernel.dtype).throttle_time
        )

    def _without_matrix_units(self, kernel: Gemm, efficiency: float) -> float:
        slowest = min(gpu.peak("fp32") for gpu, _ in self.gpus)
        return kernel.flops / (efficiency * slowest)

    def _seconds_at_best(self, kernel: Gemm | GroupedGemm | Attention) -> float:
        """What the kernel's FLOPs take in the main loop of a large product on the first GPU."""
        gpu, calibration = self.gpus[0]
        return kernel.flops / (gemm_parameters(calibration, kernel.dtype).efficiency * gpu.peak(kernel.dtype))

    def transfer(self, collective: Collective) -> Transfer | None:
        """One object for equal collectives."""
        key = (collective.axis, collective.op, collective.size)
        if key not in self.transfers:
            self.transfers[key] = self._find_transfer(*key)
        return self.transfers[key]

    def _find_transfer(self, axis: str, op: str, size: float) -> Transfer | None:
        found = self.communicators.transfer(axis, op, size, self.rank_class)
        if found is None or self.exchange_sms is None or not axis.startswith("ep"):
            return found
        return replace(found, gpu_share=min(1.0, self.exchange_sms / self.gpus[0][0].sms))

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
                streaming += count * max(self._at_full_clock(operation.what))
            else:
                seconds = max(self._at_full_clock(operation.what))
                busy = min(seconds, self._seconds_at_best(operation.what))
                products += count * busy
                streaming += count * (
                    seconds - busy
                )  # multipliers that wait for operands draw like streaming
        return products, streaming, waiting
