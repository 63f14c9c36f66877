"""What crosses from one pipeline stage to another: activations forward, gradients backward, and requests for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.program.chains import transfer_phases
from simulator.program.program import Phase
from simulator.program.schedules.lockstep import Message, asked_after

if TYPE_CHECKING:
    from simulator.program.pricing import ClassPricing
    from simulator.program.rank_builder import RankBuilder
    from simulator.program.setting import Setting
    from simulator.workloads.micro_batches import Pack

Place = tuple[int, int]
"""(stage, chunk)"""


@dataclass(frozen=True, slots=True)
class Way:
    """Every transfer between two chunks on different stages, as one of its ends takes part in it.

    `direction`: F (activations) or B (their gradients). `part`: of the model, that receives. `sender` and `receiver`
    are rank classes; `size` is in bytes, per GPU.
    """

    direction: str
    source: Place
    part: int
    size: float
    phases: tuple[Phase, ...]
    lanes: tuple[str, ...]
    sender: int
    receiver: int


@dataclass(slots=True)
class PipelineTraffic:
    """The transfers of one rank class; both ends join each of them."""

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    stage: int
    asked: dict[Message, int] = field(default_factory=dict)  # actions behind when a message is asked for
    behind: list[int | None] = field(default_factory=list)  # by actions done: the last compute task by then

    def begin(self, num_micro_batches: int) -> None:
        """A round of the schedule begins."""
        if self.asks_ahead:
            setting, pp, chunks = self.setting, self.setting.plan.pp, self.setting.num_chunks
            every = [setting.schedule(stage, pp, num_micro_batches, chunks) for stage in range(pp)]
            self.asked, self.behind = asked_after(every, chunks)[self.stage], []

    @property
    def asks_ahead(self) -> bool:
        """Requests matter, and are not made only when nothing is left to compute."""
        return self.setting.request is not None and self.setting.plan.schedule_name == "interleaved"

    def arrival(self, direction: str, chunk: int, pack: Pack | None) -> Way | None:
        """How the input of a forward, or the output gradient of a backward, comes; None if from no other stage."""
        source = self._peer(chunk, -1 if direction == "F" else +1)
        return None if source is None else self._way(direction, source, (self.stage, chunk), pack)

    def departure(self, direction: str, chunk: int, pack: Pack | None) -> Way | None:
        """How what an action makes goes on; None if to no other stage."""
        target = self._peer(chunk, +1 if direction == "F" else -1)
        return None if target is None else self._way(direction, (self.stage, chunk), target, pack)

    def receive(self, way: Way, micro_batch: int, last: int | None) -> int:
        """Take part in a transfer to this stage, whose `last` compute task so far is given."""
        deps = [] if last is None or not self.setting.receives_late else [last]
        if self.setting.request is not None:
            deps = self._request(way, micro_batch, deps)
        return self._join(way, micro_batch, deps)

    def send(self, way: Way, micro_batch: int, after: Sequence[int]) -> int:
        """Take part in a transfer from this stage, once the tasks `after` have ended."""
        return self._join(way, micro_batch, after)

    def _join(self, way: Way, micro_batch: int, deps: Sequence[int]) -> int:
        setting = self.setting
        self.rank.extra += setting.software.p2p_overhead
        key = (way.direction, way.sender, way.source, micro_batch)
        task = setting.draft.meet(key, self.pricing.rank_class, way.lanes, way.phases, deps, micro_batch)
        if setting.request is not None:
            setting.draft.connect(task, way.sender, way.receiver)
        return task

    def _request(self, way: Way, micro_batch: int, deps: list[int]) -> list[int]:
        """Ask the sending class for a message; the request queues behind what is being sent to it."""
        setting, rank_class = self.setting, self.pricing.rank_class
        if self.asks_ahead:
            count = self.asked[way.direction, way.part, micro_batch]
            before = self.behind[count - 1] if count else None
            deps = [] if before is None else [before]
        phase = Phase("pp", "request", 0.0, latency=setting.request or 0.0)
        task = setting.draft.add(rank_class, (), (phase,), deps, micro_batch)
        setting.draft.connect(task, rank_class, way.sender)
        return [task]

    def _peer(self, chunk: int, step: int) -> Place | None:
        """The chunk on another stage that exchanges with this one; None where nothing is sent."""
        found = self.setting.placement.neighbour(self.stage, chunk, step)
        return None if found is None or found[0] == self.stage else found

    def _way(self, direction: str, source: Place, target: Place, pack: Pack | None) -> Way:
        setting, sends = self.setting, source[0] == self.stage
        axis = setting.pair_axis(source[0], target[0])
        communicators, place = self.pricing.communicators, 0 if sends else 1
        _, classes = communicators.group(axis, self.pricing.rank_class, place)
        parts = [setting.placement.parts[stage][chunk] for stage, chunk in (source, target)]
        size = setting.boundary_bytes_of(pack)[min(parts)]
        transfer = communicators.transfer(axis, "send_recv", size, self.pricing.rank_class, place)
        label = "activation" if direction == "F" else "gradient"
        # An empty tensor still tells the receiver that it may go on.
        empty = (Phase("pp", label, 0.0),)
        phases = empty if transfer is None else transfer_phases(transfer, "pp", label, ())
        lane = f"pp-{'send' if sends else 'recv'}-{'forward' if direction == 'F' else 'backward'}"
        if axis != ("pair+1" if direction == "F" else "pair-1"):
            lane += f"-{axis[4:]}"  # another peer, which does not wait for the usual one
        return Way(direction, source, parts[1], size, phases, (lane,), classes[0], classes[-1])
