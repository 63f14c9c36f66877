"""What operations cost one rank class: its GPU's kernels, its groups' collectives, its host's launches."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.costs.kernels import KernelCalibration, kernel_seconds
from simulator.costs.software import SoftwareProfile
from simulator.hardware.gpu import GPU
from simulator.program.chains import Transfer
from simulator.program.communicators import FoldedCommunicators
from simulator.workloads.operators import Collective, Kernel


@dataclass(frozen=True)
class ClassPricing:
    """Implements `chains.Pricing` for one rank class.

    `gpus` are its own and those of the ranks it computes in lockstep with; the slowest sets the pace of all.
    """

    rank_class: int
    gpus: tuple[tuple[GPU, KernelCalibration], ...]
    software: SoftwareProfile
    communicators: FoldedCommunicators

    @property
    def gpu_resource(self) -> int:
        """Resource ids start with the GPUs, one per rank class."""
        return self.rank_class

    def kernel_seconds(self, kernel: Kernel) -> float:
        slowest = max(kernel_seconds(kernel, gpu, calibration) for gpu, calibration in self.gpus)
        return slowest / self.software.compute_efficiency

    def transfer(self, collective: Collective) -> Transfer | None:
        return self.communicators.transfer(collective.axis, collective.op, collective.size, self.rank_class)

    def launch(self, kernels: int, backward: bool) -> float:
        return kernels * (self.software.launch_backward if backward else self.software.launch)
