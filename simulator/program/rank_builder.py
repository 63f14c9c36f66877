"""What one rank class does during a step: schedule actions become chains, transfers and memory changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from simulator.program import host_copies
from simulator.program.chains import Chain, Launches, Transfer, idle_phase, joined, transfer_phases
from simulator.program.launching import FreeHost, launches
from simulator.program.program import Phase

if TYPE_CHECKING:
    from simulator.program.setting import Setting


SHARED_OUT = ("dp",)
"""Lanes of collectives that the host issues without waiting for the one before."""


def lane_of(axis: str) -> str:
    """The lane of an axis' collectives among kernels; `host` is the lane of launches."""
    return "copies" if axis == host_copies.AXIS else axis


@dataclass(slots=True)
class RankBuilder:
    """Adds the tasks of one rank class to the draft, in program order.

    `ready`: tasks that the next chain on the compute stream waits for, besides its own. `sync`: tasks the host waits
    for before it launches more, and `ahead` how long before their end it could go on. `carry`: launch time of the last
    chain that the host still owes. `extra`: host time spent on other things since.
    """

    setting: Setting
    rank_class: int
    sync: list[int] = field(default_factory=list)
    ahead: float = 0.0
    follows: bool = False  # whether it ever waits for what a micro-batch computes
    carry: float = 0.0
    extra: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    exposed: dict[tuple[Chain, float], Chain] = field(default_factory=dict)
    collapsed: dict[Chain, tuple[str, ...]] = field(
        default_factory=dict
    )  # lanes; none where others take part
    taken: dict[str, list[float]] = field(default_factory=dict)  # seconds of collectives by lane and thread
    host: FreeHost = field(init=False)

    def __post_init__(self) -> None:
        self.host = FreeHost(self.rank_class, 0.0 if self.setting.merges_launches else inf)

    def run(
        self, chain: Chain, deps: Iterable[int], micro_batch: int = -1, name: str = ""
    ) -> tuple[int, int] | None:
        """Add `chain`, called `name`; returns its first and last task, or None if it is empty."""
        if not chain.phases:
            return None
        if self.setting.host_waits or self.setting.host_gathers:
            needs = [*deps, *self.sync]
            chain = self._exposed(chain)
            self.wait_for([])
        else:
            host = self._launch(chain, micro_batch)
            needs = [*deps] if host is None else [*deps, host]
            if self.host.launched < inf:
                self.host.compute(chain)
        lanes = self.collapsed.get(chain)
        if lanes is None:
            lanes = self.collapsed[chain] = self._lanes(chain)
        if lanes:
            task = self.setting.draft.add(self.rank_class, lanes, chain.phases, needs, micro_batch, name)
            ran = task, task
        else:
            ran = self._run_apart(chain, needs, micro_batch, name)
        if chain.tail is not None:
            self.follow(ran[1], chain.tail.ahead)
        return ran

    def follow(self, task: int, ahead: float = 0.0) -> None:
        """The host needs what the task computes, or did `ahead` seconds before its end, before it launches more."""
        self.wait_for([task], ahead)
        self.follows = True

    def wait_for(self, tasks: list[int], ahead: float = 0.0) -> None:
        """The host launches nothing more until `ahead` seconds before these tasks end."""
        self.sync, self.ahead = tasks, ahead

    def _lanes(self, chain: Chain) -> tuple[str, ...]:
        """Those of the chain as one task; none where other classes take part in some of its phases."""
        alone = self.setting.collapse and all(map(self._alone, chain.meets))
        return ("compute", *map(lane_of, chain.meets)) if alone else ()

    def _exposed(self, chain: Chain) -> Chain:
        """The chain behind the host's lead: a host that waits for every transfer has launched nothing ahead."""
        seconds, self.extra = chain.lead + self.extra, 0.0
        if seconds <= 0.0:
            return chain
        key = (chain, seconds)
        if key not in self.exposed:
            before = Launches(seconds, 0.0, seconds)
            idle = Chain((idle_phase(seconds),), ("",), ((0, 0),), seconds=seconds, head=before)
            self.exposed[key] = joined([idle, chain])
        return self.exposed[key]

    def _run_apart(self, chain: Chain, needs: list[int], micro_batch: int, name: str) -> tuple[int, int]:
        """Every phase as a task; those that carry a collective are met by whoever carries the same piece of it.

        A slow rank may hide behind one kernel what a fast one stretches over two, so pieces have numbers.
        """
        first = last = -1
        counted = {axis: self.counters.get(f"{axis}/", 0) for axis, _ in chain.collectives}
        for phases, axis, (number, piece) in zip(chain.one_by_one, chain.axes, chain.pieces, strict=True):
            lanes = ("compute", lane_of(axis)) if axis else ("compute",)
            if axis:
                members = self.setting.communicators.classes(axis, self.rank_class)
                key = (axis, "", members, counted[axis] + number, piece)
                last = self.setting.draft.meet(key, self.rank_class, lanes, phases, needs, micro_batch, name)
            else:
                last = self.setting.draft.add(self.rank_class, lanes, phases, needs, micro_batch, name)
            first = last if first < 0 else first
            needs = [last]
        for axis, count in chain.collectives:
            self.counters[f"{axis}/"] = counted[axis] + count
        return first, last

    def _alone(self, axis: str) -> bool:
        return self.setting.communicators.classes(axis, self.rank_class) == (self.rank_class,)

    def meeting(self, axis: str, purpose: str = "") -> tuple[str, str, tuple[int, ...], int]:
        """The key of this class's next shared task on an axis: every member counts its own."""
        name = f"{axis}/{purpose}"
        self.counters[name] = self.counters.get(name, 0) + 1
        return (axis, purpose, self.setting.communicators.classes(axis, self.rank_class), self.counters[name])

    def _launch(self, chain: Chain, micro_batch: int) -> int | None:
        """The host's part before the chain may start: what it still owes, then the lead of this chain.

        After a synchronisation nothing is owed: the GPU has run all that was launched.
        """
        owed = 0.0 if self.sync else self.carry
        seconds = owed + self.extra + chain.lead - self.ahead
        spare = self.ahead - self.extra
        self.carry = max(0.0, chain.head.host - max(chain.lead, spare))
        self.extra = 0.0
        if seconds <= 0.0:
            left = spare - chain.head.host
            self.wait_for(self.sync if left > 0.0 else [], max(0.0, left))
            return None
        sync = self.sync
        self.wait_for([])
        if not self.host.waits_for(sync):
            if not self.host.launch(seconds):
                return None
            seconds = self.host.take()
        number = micro_batch if self.follows else -1  # a host that waits for nobody repeats nothing
        return self._occupy_host(launches(seconds), sync, number)

    def _occupy_host(self, phases: tuple[Phase, ...], deps: Sequence[int], micro_batch: int = -1) -> int:
        """A task of the host, behind all its launches so far."""
        self.launch_rest()
        self.host.task = self.setting.draft.add(self.rank_class, ("host",), phases, deps, micro_batch)
        return self.host.task

    def launch_rest(self) -> None:
        """What nobody waits for is launched by the time the host goes on to something else, or ends the step."""
        if self.host.pending:
            phases = launches(self.host.take())
            self.host.task = self.setting.draft.add(self.rank_class, ("host",), phases)

    def host_work(
        self, label: str, seconds: float, deps: Sequence[int] = (), kind: str = "launch"
    ) -> int | None:
        """Time the host spends on something else (scheduling a transfer, data, logging)."""
        if seconds <= 0.0:
            return None
        needs = [*self.sync, *deps]
        if not self.host.waits_for(needs):
            self.host.launched += seconds
        return self._occupy_host((Phase(kind, label, 0.0, latency=seconds),), needs)

    def communicate(
        self,
        transfer: Transfer | None,
        kind: str,
        label: str,
        lane: str,
        deps: Iterable[int],
        micro_batch: int = -1,
    ) -> int | None:
        """A collective on its own lane, shared with the other classes of the group; None if nothing moves."""
        if transfer is None:
            return None
        phases = transfer_phases(transfer, kind, label, (self.rank_class,))
        key, lanes = self.meeting(transfer.axis, lane), (self._thread(lane, transfer),)
        return self.setting.draft.meet(key, self.rank_class, lanes, phases, deps, micro_batch)

    def _thread(self, lane: str, transfer: Transfer) -> str:
        """The lane itself, or that of the thread which has had least to do where several share the work.

        Two ranks have one connection, on which their collectives' requests would queue behind each other's data.
        """
        setting = self.setting
        alone = setting.request is not None and setting.grid.size(transfer.axis) == 2
        if setting.threads == 1 or lane not in SHARED_OUT or alone:
            return lane
        taken = self.taken.setdefault(lane, [0.0] * self.setting.threads)
        thread = taken.index(min(taken))
        taken[thread] += transfer.seconds
        return f"{lane} {thread}"
