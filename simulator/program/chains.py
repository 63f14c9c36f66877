"""What does one rank do between two meeting points? Phases back to back, and the host's launches for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf

from simulator.program.program import Draws, Due, Phase


@dataclass(frozen=True, slots=True)
class Transfer:
    """A priced collective of one group: alone it takes `latency` + `work` / `rate` seconds.

    `draws` are amounts on links per byte of work; `gpu_share` is what it takes of its GPUs while at full rate. `cap`
    is a rate that it does not exceed however much the links could carry. `op`, `size` and `groups` (the
    name under which communicators keep them) say what was priced, where that was a collective.
    """

    axis: str
    latency: float
    work: float
    draws: Draws
    rate: float
    gpu_share: float
    algorithm: str = ""
    cap: float = inf
    op: str = ""
    size: float = 0.0
    groups: str = ""

    @property
    def seconds(self) -> float:
        return self.latency + (self.work / self.rate if self.work else 0.0)

    @property
    def times(self) -> tuple[Hashable, ...]:
        """Equal for transfers that are alike in all but which links they draw on."""
        return (
            self.axis,
            self.latency,
            self.work,
            bool(self.draws),
            self.rate,
            self.gpu_share,
            self.algorithm,
            self.cap,
            self.op,
            self.size,
            self.groups,
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of a transfer, apart from its work: what a phase may be due to."""

    transfer: Transfer


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
        pieces += _after(chain.pieces, chain.axes, tuple(counts.items())) if counts else chain.pieces
        for axis, count in chain.collectives:
            counts[axis] = counts.get(axis, 0) + count
        seconds += chain.seconds
        host += chain.host
    return Chain(tuple(phases), tuple(axes), tuple(pieces), tuple(counts.items()), seconds, host, head, tail)


@lru_cache(maxsize=4096)
def _after(
    pieces: tuple[Piece, ...], axes: tuple[str, ...], counts: tuple[tuple[str, int], ...]
) -> tuple[Piece, ...]:
    """The pieces of a chain behind so many collectives by axis: layers of all classes have the same."""
    before = dict(counts)
    places = zip(axes, pieces, strict=True)
    return tuple([(before.get(axis, 0) + number, part) for axis, (number, part) in places])


@lru_cache(maxsize=65536)
def idle_phase(seconds: float) -> Phase:
    """The device waits for the host's launches."""
    return Phase("launch", "launch", 0.0, latency=seconds)


@lru_cache(maxsize=65536)
def transfer_phases(transfer: Transfer, kind: str, label: str, gpus: tuple[int, ...]) -> tuple[Phase, ...]:
    """The one phase of a collective that runs alone on its lanes and takes `gpu_share` of each GPU in `gpus`."""
    draws = transfer.draws
    if transfer.gpu_share > 0.0 and transfer.work > 0.0:
        shares = ((gpu, transfer.gpu_share / transfer.rate) for gpu in gpus)
        draws = tuple(sorted((*draws, *shares)))
    due: Due = ((transfer, 1.0),) if transfer.op else ()
    return (Phase(kind, label, transfer.work, draws, transfer.latency, transfer.cap, due_to=due),)
