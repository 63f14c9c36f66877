"""What crosses from one pipeline stage to another: activations forward, gradients backward, and requests for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.program.chains import transfer_phases
from simulator.program.crossings import boundary, tied
from simulator.program.draft import Meetings
from simulator.program.program import Phase
from simulator.program.schedules.lockstep import Message, asked_after

if TYPE_CHECKING:
    from simulator.program.communicators import Flow, FoldedCommunicators
    from simulator.program.pricing import ClassPricing
    from simulator.program.rank_builder import RankBuilder
    from simulator.program.setting import Setting
    from simulator.workloads.micro_batches import Pack

    Alike = tuple[str, Flow, tuple[Phase, ...], tuple[str, ...]]

Place = tuple[int, int]
"""(stage, chunk)"""

Sizes = tuple[tuple[str, float], ...]
"""(axis of pairs, bytes that each of them sends)"""


@dataclass(frozen=True, slots=True)
class Way:
    """Every message of a pair of ranks between two chunks on different stages, as one of its ends takes part in it.

    `direction`: F (activations) or B (their gradients). `part`: of the model, that receives.
    """

    direction: str
    source: Place
    part: int
    axis: str
    flow: Flow
    phases: tuple[Phase, ...]
    lanes: tuple[str, ...]
    overhead: float
    """Seconds of the host per message."""
    messages: Meetings
    """By micro-batch; both ends have the same."""


Ways = tuple[Way, ...]
"""Side by side, all that a rank sends or receives of one tensor: one, where stages have equal degrees."""


@dataclass(slots=True)
class PipelineTraffic:
    """The transfers of one rank class; both ends join each of them."""

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    stage: int
    asked: dict[Message, int] = field(default_factory=dict)  # actions behind when a message is asked for
    behind: list[int | None] = field(default_factory=list)  # by actions done: the last compute task by then
    _alike: dict[tuple[str, int, int, Sizes], list[Alike]] = field(default_factory=dict)

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

    def arrival(self, direction: str, chunk: int, pack: Pack | None) -> Ways:
        """How the input of a forward, or the output gradient of a backward, comes; nothing if from no other stage."""
        source = self._peer(chunk, -1 if direction == "F" else +1)
        return () if source is None else self._ways(direction, source, (self.stage, chunk), pack)

    def departure(self, direction: str, chunk: int, pack: Pack | None) -> Ways:
        """How what an action makes goes on; nothing if to no other stage."""
        target = self._peer(chunk, +1 if direction == "F" else -1)
        return () if target is None else self._ways(direction, (self.stage, chunk), target, pack)

    def receive(self, ways: Ways, micro_batch: int, last: int | None) -> list[int]:
        """Take part in a transfer to this stage, whose `last` compute task so far is given."""
        deps = [] if last is None or not self.setting.receives_late else [last]
        if self.setting.request is None:
            return [self._join(way, micro_batch, deps) for way in ways]
        return [self._join(way, micro_batch, self._request(way, micro_batch, deps)) for way in ways]

    def send(self, ways: Ways, micro_batch: int, after: Sequence[int]) -> list[int]:
        """Take part in a transfer from this stage, once the tasks `after` have ended."""
        return [self._join(way, micro_batch, after) for way in ways]

    def _join(self, way: Way, micro_batch: int, deps: Sequence[int]) -> int:
        setting, rank = self.setting, self.rank
        rank.extra += way.overhead
        task = setting.draft.meet(
            micro_batch, rank.rank_class, way.lanes, way.phases, deps, micro_batch, channel=way.messages
        )
        if setting.request is not None:
            setting.draft.connect(task, way.flow.sender, way.flow.receiver)
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
        setting.draft.connect(task, rank_class, way.flow.sender)
        return [task]

    def _peer(self, chunk: int, step: int) -> Place | None:
        """The chunk on another stage that exchanges with this one; None where nothing is sent."""
        found = self.setting.placement.neighbour(self.stage, chunk, step)
        return None if found is None or found[0] == self.stage else found

    def _ways(self, direction: str, source: Place, target: Place, pack: Pack | None) -> Ways:
        setting = self.setting
        parts = [setting.placement.parts[stage][chunk] for stage, chunk in (source, target)]
        sizes = tuple(boundary(setting, source[0], target[0], min(parts), pack))
        key = (direction, source[0], target[0], sizes)
        if key not in self._alike:
            self._alike[key] = self._find_alike(*key)
        return tuple([self._way(direction, source, parts[1], message) for message in self._alike[key]])

    def _way(self, direction: str, source: Place, part: int, message: Alike) -> Way:
        axis, flow, _, _ = message
        messages = self.setting.draft.channel((direction, axis, flow.alike, source))
        return Way(
            direction, source, part, *message, self.setting.software.p2p_overhead * flow.count, messages
        )

    def _find_alike(self, direction: str, source: int, target: int, sizes: Sizes) -> list[Alike]:
        """What messages of these sizes from stage `source` to `target` have in common, whichever chunks send them."""
        place = 0 if source == self.stage else 1
        label = "activation" if direction == "F" else "gradient"
        lane = f"pp-{'send' if place == 0 else 'recv'}-{'forward' if direction == 'F' else 'backward'}"
        communicators = self.pricing.communicators
        found: list[Alike] = []
        for axis, size in sizes:
            for flow in communicators.flows(axis, self.pricing.rank_class, place):
                lanes = (lane + self._apart(direction, axis, (target, source)[place], len(found)),)
                found.append((axis, flow, _phases(communicators, axis, size, flow, label), lanes))
        return found

    def _apart(self, direction: str, axis: str, peer: int, number: int) -> str:
        """What tells the lane of a message from those of others, for which it does not wait."""
        if self.setting.view is not None:
            return f" of stage {peer}" + (f" ({number + 1})" if number else "")
        return "" if axis == ("pair+1" if direction == "F" else "pair-1") else f"-{axis[4:]}"


def exchange_ends(
    setting: Setting, pricing: ClassPricing, stage: int, lane: str, deps: Sequence[int]
) -> list[int]:
    """Both ends of the pipeline send each other their gradients of a shared embedding, after the tasks `deps`."""
    communicators, rank_class, ends = pricing.communicators, pricing.rank_class, (0, setting.plan.pp - 1)
    found: list[int] = []
    for source, target in (ends, ends[::-1]):
        for axis, size in tied(setting, source, target):
            for flow in communicators.flows(axis, rank_class, 0 if stage == source else 1):
                phases = _phases(communicators, axis, size, flow, "reduce tied embedding")
                lanes, key = (f"{lane} ends ({len(found) + 1})",), ("tied", axis, flow.alike)
                found.append(setting.draft.meet(key, rank_class, lanes, phases, deps))
    return found


def _phases(
    communicators: FoldedCommunicators, axis: str, size: float, flow: Flow, label: str
) -> tuple[Phase, ...]:
    transfer = communicators.flow(axis, size, flow.group)
    # An empty tensor still tells the receiver that it may go on.
    return (Phase("pp", label, 0.0),) if transfer is None else transfer_phases(transfer, "pp", label, ())
