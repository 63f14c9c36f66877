"""From the operations of a layer to the phases of a chain: how do they lie on the compute stream?

Operations of one layer run in order on the compute stream; a tensor-, context- or expert-parallel collective either
stops the stream until it is done or, when asynchronous, runs beside the kernels that follow until something waits for
it. Both become phases: compute alone, collective alone, or compute beside a collective (one phase that draws on the
GPU and on the links). Beside a collective, kernels progress at 1 - gpu_share of their speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.program.chains import Chain, Launches, Piece, Transfer, idle_phase, joined, transfer_phases
from simulator.program.dues import Stretch, dues
from simulator.program.program import Draws, Phase
from simulator.workloads.layers import Operation
from simulator.workloads.operators import Attention, Collective, Gemm, Kernel


class Pricing(Protocol):
    """Prices operations on one rank class."""

    @property
    def gpu_resource(self) -> int: ...

    @property
    def awaits_counts(self) -> bool:
        """Whether the host waits for the numbers that operations marked `awaited` need."""
        ...

    def kernel_seconds(self, kernel: Kernel) -> float: ...

    def transfer(self, collective: Collective) -> Transfer | None:
        """None where the group has one member."""
        ...

    def launch(self, kernels: int, calls: int, backward: bool) -> float: ...

    @property
    def blocking(self) -> bool:
        """Whether the host waits for every kernel before it launches the next."""
        ...


KINDS = {
    "etp": "tp",
    "tp_x": "tp",
    "tp_z": "tp",
    "ulysses": "cp",
    "ring": "cp",
    "ep_inside": "ep",
    "ep_across": "ep",
    "host": "offload",
}
"""What the time of an axis is reported as, where that is not its own name."""

COMPUTE_WEIGHT = 1e-13
"""Kernels yield to collectives on the GPU: a running collective keeps the SMs it holds (rates in bytes/s against
seconds/s, so any weight far below 1/bandwidth says this)."""


def chain_of(operations: Sequence[Operation], pricing: Pricing, kind: str, backward: bool) -> Chain:
    """Price `operations` in order; `kind` (compute, recompute, optimizer) attributes the kernels' time."""
    track = _Track(pricing, kind, backward)
    for operation in operations:
        if operation.is_collective:
            track.collective(operation)
        else:
            track.kernel(operation)
    track.wait(None)
    return track.finish()


def draws_beside(transfer: Transfer, gpu: int) -> Draws:
    """What a kernel draws, per second of its work, that runs beside a transfer at full rate."""
    links = ((link, amount * transfer.rate) for link, amount in transfer.draws)
    return tuple(sorted(((gpu, 1.0), *links)))


@dataclass(slots=True)
class _InFlight:
    """An asynchronous collective that is under way."""

    label: str
    transfer: Transfer
    number: int  # among the chain's collectives of its axis
    issued: int  # stretches laid down before
    latency_left: float
    work_left: float
    pieces: int = 0  # phases laid down so far

    @property
    def share(self) -> float:
        """Of the GPU, that it takes now."""
        return 0.0 if self.latency_left else self.transfer.gpu_share

    @property
    def seconds_left(self) -> float:
        return self.latency_left + (self.work_left / self.transfer.rate if self.work_left else 0.0)

    def advance(self, seconds: float) -> None:
        used = min(seconds, self.latency_left)
        self.latency_left -= used
        self.work_left = max(0.0, self.work_left - (seconds - used) * self.transfer.rate)


class _Track:
    """The compute stream of one rank while a list of operations is laid on it."""

    def __init__(self, pricing: Pricing, kind: str, backward: bool) -> None:
        self.pricing = pricing
        self.kind = kind
        self.backward = backward
        self.flights: list[_InFlight] = []
        self.phases: list[Phase] = []
        self.stretches: list[Stretch] = []  # what each phase is made of
        self.axes: list[str] = []
        self.pieces: list[Piece] = []
        self.counts: dict[str, int] = {}
        self.parts: list[Chain] = []  # up to each moment at which the host waited for the device
        self.seconds = self.host = self.bound = 0.0
        self.graphed = False  # whether the last operation was launched together with others

    def kernel(self, operation: Operation) -> None:
        kernel = operation.what
        assert not isinstance(kernel, Collective)
        for label in operation.waits_for:
            self.wait(label)
        if operation.awaited and self.pricing.awaits_counts:
            self._synchronise()
        self._launch(operation, 1 if isinstance(kernel, Gemm | Attention) else kernel.kernels)
        left = self.pricing.kernel_seconds(kernel)
        total = left
        while left > 0.0 and self.flights:
            flight = self.flights[0]
            share = flight.share
            window = flight.latency_left or flight.seconds_left
            wall = min(window, left / (1.0 - share))
            if wall >= window * (1 - 1e-12):
                wall = window
            done = wall * (1.0 - share)
            self._compute(operation, wall, done / total, flight)
            left = 0.0 if left - done <= 1e-12 * total else left - done
            flight.advance(wall)
            if flight.seconds_left <= 1e-15:
                self.flights.pop(0)
        if left > 0.0:
            self._compute(operation, left, left / total, None)

    def collective(self, operation: Operation) -> None:
        collective = operation.what
        assert isinstance(collective, Collective)
        for label in operation.waits_for:
            self.wait(label)
        transfer = self.pricing.transfer(collective)
        if transfer is None:
            return
        if operation.awaited and self.pricing.awaits_counts:
            self._synchronise()
        self._launch(operation, 1)
        number = self.counts.get(transfer.axis, 0)
        self.counts[transfer.axis] = number + 1
        issued = len(self.phases)
        flight = _InFlight(operation.label, transfer, number, issued, transfer.latency, transfer.work)
        self.flights.append(flight)
        if not operation.asynchronous:
            self.wait(operation.label)

    def wait(self, label: str | None) -> None:
        """Stop the stream until the named collective (all of them for None) and those before it are done."""
        if label is not None and all(flight.label != label for flight in self.flights):
            return
        while self.flights:
            flight = self.flights.pop(0)
            if flight.seconds_left > 0.0:
                self._communicate(flight)
            if flight.label == label:
                return

    def finish(self) -> Chain:
        if self.pricing.blocking:
            return self._blocking()
        return joined([*self.parts, self._part()]) if self.parts else self._part()

    def _blocking(self) -> Chain:
        """The GPU idles through every launch; all of them at once, since no event falls between."""
        phases, axes, pieces = self._laid(), tuple(self.axes), tuple(self.pieces)
        counts, idle = tuple(self.counts.items()), idle_phase(self.host)
        return Chain((idle, *phases), ("", *axes), ((0, 0), *pieces), counts, self.host + self.seconds)

    def _part(self) -> Chain:
        counts = tuple(self.counts.items())
        launches = Launches(self.seconds, self.host, self.bound)
        phases, axes, pieces = self._laid(), tuple(self.axes), tuple(self.pieces)
        if not self.parts:
            return Chain(phases, axes, pieces, counts, self.seconds, self.host, launches)
        seconds = self.seconds
        if launches.lead > 0.0:
            phases, axes, pieces = (idle_phase(launches.lead), *phases), ("", *axes), ((0, 0), *pieces)
            seconds += launches.lead
        return Chain(phases, axes, pieces, counts, seconds, self.host, Launches(), launches)

    def _laid(self) -> tuple[Phase, ...]:
        """The phases, each with what it is due to."""
        found = zip(self.phases, dues(self.stretches), strict=True)
        return tuple([Phase(*phase[:-1], due) for phase, due in found])  # faster than `_replace`

    def _synchronise(self) -> None:
        """The host waits until the device has done all that was launched."""
        if self.pricing.blocking:  # as after every kernel
            return
        self.wait(None)
        self.parts.append(self._part())
        self.phases, self.stretches, self.axes, self.pieces, self.counts = [], [], [], [], {}
        self.seconds = self.host = self.bound = 0.0
        self.graphed = False

    def _launch(self, operation: Operation, launches: int) -> None:
        """Kernels of a captured graph are launched with the first of them."""
        if operation.graphed:
            launches = 0 if self.graphed else 1
        self.graphed = operation.graphed
        self.host += self.pricing.launch(launches, operation.calls, self.backward)
        self.bound = max(self.bound, self.host)

    def _add(self, phase: Phase, flight: _InFlight | None, seconds: float) -> None:
        self.phases.append(phase)
        self.axes.append("" if flight is None else flight.transfer.axis)
        self.pieces.append((0, 0) if flight is None else (flight.number, flight.pieces))
        if flight is not None:
            flight.pieces += 1
        self.seconds += seconds
        self.bound += seconds

    def _compute(self, operation: Operation, wall: float, part: float, flight: _InFlight | None) -> None:
        """A part of a kernel, first what it does for documents and then what for padding."""
        filled = operation.filled
        if filled > 0.0:
            flops = operation.model_flops * part
            self._lay(self.kind, operation, wall * filled, part * filled, flops, flight)
        if filled < 1.0:
            self._lay("padding", operation, wall * (1.0 - filled), part * (1.0 - filled), 0.0, flight)

    def _lay(
        self,
        kind: str,
        operation: Operation,
        wall: float,
        part: float,
        flops: float,
        flight: _InFlight | None,
    ) -> None:
        moves = flight is not None and not flight.latency_left
        share = flight.share if flight is not None else 0.0
        self.stretches.append(Stretch(operation.what, flight, moves, share))
        gpu = self.pricing.gpu_resource
        draws: Draws = ((gpu, 1.0),)
        weight, carried = COMPUTE_WEIGHT, None
        if flight is not None and moves and flight.transfer.draws:
            draws = draws_beside(flight.transfer, gpu)
            weight, carried = 1.0 / flight.transfer.rate, flight
        traffic = operation.hbm_bytes * part
        phase = Phase(kind, operation.label, wall, draws, weight=weight, flops=flops, hbm_bytes=traffic)
        self._add(phase, carried, wall)

    def _communicate(self, flight: _InFlight) -> None:
        transfer = flight.transfer
        axis = transfer.axis.partition("@")[0]
        kind = KINDS.get(axis, axis)
        (phase,) = transfer_phases(transfer, kind, flight.label, (self.pricing.gpu_resource,))
        self.stretches.append(Stretch(None, flight, True, 0.0))
        phase = phase._replace(latency=flight.latency_left, work=flight.work_left)
        self._add(phase, flight, flight.seconds_left)
