"""From the operations of a layer to the phases of a chain: what one rank does between two meeting points.

Operations of one layer run in order on the compute stream; a tensor-, context- or expert-parallel collective either
stops the stream until it is done or, when asynchronous, runs beside the kernels that follow until something waits for
it. Both become phases: compute alone, collective alone, or compute beside a collective (one phase that draws on the
GPU and on the links). Beside a collective, kernels progress at 1 - gpu_share of their speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from typing import Protocol

from simulator.program.program import Draws, Phase
from simulator.workloads.layers import Operation
from simulator.workloads.operators import Attention, Collective, Gemm, Kernel


@dataclass(frozen=True, slots=True)
class Transfer:
    """A priced collective of one group: alone it takes `latency` + `work` / `rate` seconds.

    `draws` are amounts on links per byte of work; `gpu_share` is what it takes of its GPUs while at full rate. `cap`
    is a rate that it does not exceed however much the links could carry.
    """

    axis: str
    latency: float
    work: float
    draws: Draws
    rate: float
    gpu_share: float
    algorithm: str = ""
    cap: float = inf

    @property
    def seconds(self) -> float:
        return self.latency + (self.work / self.rate if self.work else 0.0)


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


Piece = tuple[int, int]
"""(number of a collective in a chain, which piece of it)"""


@dataclass(frozen=True, slots=True)
class Launches:
    """What a host launches without waiting for the device: how long that and the work itself take.

    `seconds`: of the work, if the host were never late. `host`: of the launches. `bound`: end of the last kernel if
    the device were never late, from the moment the host starts to launch, so that the work cannot end before
    (host start) + bound.
    """

    seconds: float = 0.0
    host: float = 0.0
    bound: float = 0.0

    @property
    def lead(self) -> float:
        """How long the host must be at work before the device may start so that no kernel is awaited."""
        return max(0.0, self.bound - self.seconds)

    @property
    def ahead(self) -> float:
        """How long before the end of the work the host has launched all of it, having started just in time."""
        return max(self.seconds, self.bound) - self.host

    def __add__(self, other: Launches) -> Launches:
        bound = max(self.bound + other.seconds, self.host + other.bound)
        return Launches(self.seconds + other.seconds, self.host + other.host, bound)


@dataclass(frozen=True, eq=False)
class Chain:
    """Phases run back to back, with the time that the host needs to launch them.

    `axes[i]` is the axis whose group carries phase i together ("" where the rank is alone), and `pieces[i]` says for
    which collective: its number among the chain's collectives of that axis, and which piece of it the phase is (beside
    one kernel, beside the next, ...). `collectives`: how many there are by axis. `seconds`: alone on its resources.
    `host`: total launch time. `head`: what is launched before the host first waits for the device, or everything;
    `tail`: what is launched after it last did. What follows such a wait finds nothing launched: the device idles for
    the lead, a phase of the chain.
    """

    phases: tuple[Phase, ...] = ()
    axes: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    collectives: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0
    host: float = 0.0
    head: Launches = Launches()
    tail: Launches | None = None

    @cached_property
    def meets(self) -> tuple[str, ...]:
        """The axes on which the chain communicates."""
        return tuple(dict.fromkeys(axis for axis in self.axes if axis))

    @cached_property
    def one_by_one(self) -> tuple[tuple[Phase, ...], ...]:
        """Every phase as a run of its own; equal ones are one object."""
        runs = {id(phase): (phase,) for phase in self.phases}
        return tuple([runs[id(phase)] for phase in self.phases])

    @cached_property
    def lead(self) -> float:
        """How long the host must be at work before the chain may start so that no kernel is awaited."""
        return self.head.lead

    def __add__(self, other: Chain) -> Chain:
        return joined((self, other))


def joined(chains: Sequence[Chain]) -> Chain:
    """The chains one after the other."""
    phases: list[Phase] = []
    axes: list[str] = []
    pieces: list[Piece] = []
    counts: dict[str, int] = {}
    seconds = host = 0.0
    head, tail = Launches(), None
    for chain in chains:
        if tail is None:
            head += chain.head
        else:
            longer = tail + chain.head
            idle = longer.lead - tail.lead
            if idle > 0.0:
                phases.append(idle_phase(idle))
                axes.append("")
                pieces.append((0, 0))
                seconds += idle
            tail = longer
        tail = chain.tail or tail
        phases += chain.phases
        axes += chain.axes
        before = (counts.get(axis, 0) for axis in chain.axes)
        pieces += [(first + number, part) for first, (number, part) in zip(before, chain.pieces, strict=True)]
        for axis, count in chain.collectives:
            counts[axis] = counts.get(axis, 0) + count
        seconds += chain.seconds
        host += chain.host
    return Chain(tuple(phases), tuple(axes), tuple(pieces), tuple(counts.items()), seconds, host, head, tail)


@lru_cache(maxsize=65536)
def idle_phase(seconds: float) -> Phase:
    """The device waits for the host's launches."""
    return Phase("launch", "launch", 0.0, latency=seconds)


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


@dataclass(slots=True)
class _InFlight:
    """An asynchronous collective that is under way."""

    label: str
    transfer: Transfer
    number: int  # among the chain's collectives of its axis
    latency_left: float
    work_left: float
    pieces: int = 0  # phases laid down so far

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
            share = flight.transfer.gpu_share if not flight.latency_left else 0.0
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
        flight = _InFlight(operation.label, transfer, number, transfer.latency, transfer.work)
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
        phases, axes, pieces = tuple(self.phases), tuple(self.axes), tuple(self.pieces)
        counts, idle = tuple(self.counts.items()), idle_phase(self.host)
        return Chain((idle, *phases), ("", *axes), ((0, 0), *pieces), counts, self.host + self.seconds)

    def _part(self) -> Chain:
        counts = tuple(self.counts.items())
        launches = Launches(self.seconds, self.host, self.bound)
        phases, axes, pieces = tuple(self.phases), tuple(self.axes), tuple(self.pieces)
        if not self.parts:
            return Chain(phases, axes, pieces, counts, self.seconds, self.host, launches)
        seconds = self.seconds
        if launches.lead > 0.0:
            phases, axes, pieces = (idle_phase(launches.lead), *phases), ("", *axes), ((0, 0), *pieces)
            seconds += launches.lead
        return Chain(phases, axes, pieces, counts, seconds, self.host, Launches(), launches)

    def _synchronise(self) -> None:
        """The host waits until the device has done all that was launched."""
        if self.pricing.blocking:  # as after every kernel
            return
        self.wait(None)
        self.parts.append(self._part())
        self.phases, self.axes, self.pieces, self.counts = [], [], [], {}
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
        draws: Draws = ((self.pricing.gpu_resource, 1.0),)
        weight, carried = COMPUTE_WEIGHT, None
        if flight is not None and not flight.latency_left and flight.transfer.draws:
            rate = flight.transfer.rate
            links = ((link, amount * rate) for link, amount in flight.transfer.draws)
            draws = tuple(sorted((*draws, *links)))
            weight, carried = 1.0 / rate, flight
        traffic = operation.hbm_bytes * part
        phase = Phase(kind, operation.label, wall, draws, weight=weight, flops=flops, hbm_bytes=traffic)
        self._add(phase, carried, wall)

    def _communicate(self, flight: _InFlight) -> None:
        transfer = flight.transfer
        axis = transfer.axis.partition("@")[0]
        kind = KINDS.get(axis, axis)
        (phase,) = transfer_phases(transfer, kind, flight.label, (self.pricing.gpu_resource,))
        phase = phase._replace(latency=flight.latency_left, work=flight.work_left)
        self._add(phase, flight, flight.seconds_left)


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


@lru_cache(maxsize=65536)
def transfer_phases(transfer: Transfer, kind: str, label: str, gpus: tuple[int, ...]) -> tuple[Phase, ...]:
    """The one phase of a collective that runs alone on its lanes and takes `gpu_share` of each GPU in `gpus`."""
    draws = transfer.draws
    if transfer.gpu_share > 0.0 and transfer.work > 0.0:
        shares = ((gpu, transfer.gpu_share / transfer.rate) for gpu in gpus)
        draws = tuple(sorted((*draws, *shares)))
    return (Phase(kind, label, transfer.work, draws, latency=transfer.latency, cap=transfer.cap),)
