"""One training step of one rank class: actions of the schedule, sums, update, in program order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from simulator.costs.memory import gradient_copies, stage_state
from simulator.program.averaging import average_parameters, send_to_neighbours
from simulator.program.chains import Chain
from simulator.program.gradients import GradientTraffic
from simulator.program.layer_chains import LayerChains
from simulator.program.offload import HostTraffic
from simulator.program.optimizer import optimizer_step
from simulator.program.parameters import ParameterTraffic
from simulator.program.passes import Pass, Passes
from simulator.program.pipeline import PipelineTraffic
from simulator.program.pricing import ClassPricing
from simulator.program.rank_builder import RankBuilder
from simulator.program.rounds import Round, rounds
from simulator.program.schedules import Action
from simulator.program.servers import ServerTraffic
from simulator.program.setting import Setting
from simulator.program.shard_copies import copies_of
from simulator.program.side_by_side import Stream, run_side_by_side
from simulator.program.units import Unit


@dataclass(slots=True)
class Step:
    """Walks the schedule of one rank class and adds its tasks."""

    setting: Setting
    pricing: ClassPricing
    stage: int
    priced: dict[Hashable, Chain]  # in earlier steps, by content
    layers: LayerChains
    rank: RankBuilder = field(init=False)
    host: HostTraffic = field(init=False)
    servers: ServerTraffic = field(init=False)
    pipeline: PipelineTraffic = field(init=False)
    parameters: ParameterTraffic = field(init=False)
    gradients: GradientTraffic = field(init=False)
    passes: Passes = field(init=False)
    blockers: list[int] = field(default_factory=list)  # tasks the compute stream waits for next
    history: list[int] = field(default_factory=list)  # last tasks of the units computed, for prefetch limits
    final: frozenset[Action] = frozenset()  # after which the gradients of a chunk are complete
    number: int = 0  # of the step
    _last: int | None = None
    count: int = field(init=False)  # micro-batches per step

    def __post_init__(self) -> None:
        setting, pricing, stage = self.setting, self.pricing, self.stage
        self.count = setting.count_of(pricing.rank_class)
        self.rank = RankBuilder(setting, pricing.rank_class)
        self.host = HostTraffic(setting, pricing, self.rank)
        self.servers = ServerTraffic(setting, pricing, self.rank)
        self.pipeline = PipelineTraffic(setting, pricing, self.rank, stage)
        self.parameters = ParameterTraffic(setting, pricing, self.rank, self.host, stage, self.count)
        self.gradients = GradientTraffic(
            setting, pricing, self.rank, self.host, self.servers, stage, self.count
        )
        packs = setting.packs_of(pricing.rank_class)
        self.passes = Passes(setting, pricing, stage, self.pipeline, packs, self.priced, self.layers)

    def build(self) -> None:
        setting, plan = self.setting, self.setting.plan
        self._reside()
        steps = (self.count, setting.num_chunks, setting.num_steps)
        updates = self.count if setting.schedule.updates_each_micro_batch else 1
        for index, actions in enumerate(rounds(setting.schedule, self.stage, plan.pp, *steps)):
            self.number = index // updates
            self._round(actions, begins_step=index % updates == 0)
        self.rank.launch_rest()

    def _round(self, actions: Round, begins_step: bool) -> None:
        """Actions up to an update, and the update."""
        setting = self.setting
        overhead = setting.software.step_overhead if begins_step else 0.0
        start = self.rank.host_work("step overhead", overhead, kind="launch")
        self.rank.wait_for([] if start is None else [start])
        self.final, self.gradients.reductions = actions.final, []
        if setting.gathers_ahead:
            self.parameters.gather_everything(self.blockers)
        sent = send_to_neighbours(setting, self.pricing, self.rank, self.stage, self.blockers)
        self.blockers += self.servers.fetch_rows(self.stage, self.blockers, self.count)
        self.pipeline.begin(self.count)
        for action, beside in self._beside(actions.actions):
            if beside is None:
                self._act(action)
            else:
                self._act_side_by_side(action, beside)
        self._reduce_rest()
        done = [] if self._last is None else [self._last]
        self.gradients.reduce_copies(done)
        deps = [*sent, *self.gradients.reductions, *self.blockers, *done]
        self.blockers = optimizer_step(setting, self.pricing, self.rank, self.host, self.stage, deps)
        self.blockers = self.servers.update_rows(self.blockers, self.count)
        if setting.plan.synchronisation.scheme == "local" and self.number == setting.num_steps - 1:
            self.blockers = average_parameters(setting, self.pricing, self.rank, self.stage, self.blockers)

    def _reside(self) -> None:
        """What is in memory before the step begins."""
        setting, rank_class = self.setting, self.pricing.rank_class
        layers = [p.layer for content in setting.content[self.stage] for p in content.layers]
        part = setting.part_of(rank_class)
        state = stage_state(layers, setting.workload, setting.shard, setting.grid.world, part)
        versions = setting.schedule.versions(self.stage, setting.plan.pp)
        setting.draft.resident(rank_class, "parameters", state.parameters * versions)
        setting.draft.resident(rank_class, "gradients", state.gradients)
        copies = gradient_copies(
            layers, setting.workload, setting.shard, setting.grid.world, setting.software.memory
        )
        setting.draft.resident(rank_class, "gradient copies", copies)
        setting.draft.resident(rank_class, "optimizer", state.optimizer)
        setting.draft.resident(rank_class, "context", setting.software.memory.context)

    # --- actions ---------------------------------------------------------------------------------------------------

    def _act(self, action: Action) -> None:
        """Forward; backward, all of it or (I) only what the stage before waits for; or what that left for later (W)."""
        setting, micro_batch = self.setting, action.micro_batch
        one = self.passes.of(action)
        arrived = self.pipeline.receive(one.arrival, micro_batch, self._last)
        last = self._run_units(one, self._take_blockers() + arrived, action)
        if one.departure:
            after = [last] if last >= 0 else []
            if setting.software.backward_awaits_reduction and self._reduces_now(action):
                after = self.gradients.reductions + after
            sent = self.pipeline.send(one.departure, micro_batch, after)
            if not setting.overlaps_pipeline and setting.request is None:
                self.blockers += sent  # with requests, the host's socket takes it in
        self.pipeline.behind.append(self._last)

    def _beside(self, actions: Sequence[Action]) -> Iterator[tuple[Action, Action | None]]:
        """Actions in order, each with the next one where the two run side by side."""
        ops = ("F", "B") if self.setting.schedule.pairs else ("B", "F")
        index = 0
        while index < len(actions):
            one, other = actions[index], actions[index + 1] if index + 1 < len(actions) else None
            index += 1
            if other is not None and self.setting.exchanges_behind and self._independent(one, other, ops):
                index += 1
                yield one, other
            else:
                yield one, None

    def _independent(self, one: Action, other: Action, ops: tuple[str, str]) -> bool:
        """Whether these are a forward and a backward that do not need one another, with nothing to do in between."""
        same = one.micro_batch == other.micro_batch
        reduces = any(self._reduces_now(action) for action in (one, other))
        return (one.op, other.op) == ops and not same and not reduces

    def _act_side_by_side(self, one: Action, other: Action) -> None:
        """A forward and a backward of different micro-batches (see `side_by_side`), handed on when both are done."""
        setting = self.setting
        forward, backward = (one, other) if one.op == "F" else (other, one)
        blockers = self._take_blockers()
        running: list[tuple[Pass, Stream]] = []
        for action in (backward, forward):
            found = self.passes.of(action)
            needs = blockers + self.pipeline.receive(found.arrival, action.micro_batch, self._last)
            if action.op == "F" and setting.gathers_ahead:
                needs += self.parameters.gathered_chunk(found.content)
            pieces = self.passes.pieces(found)
            running.append((found, Stream(pieces, action.micro_batch, found.direction, needs)))
        run_side_by_side(self.rank, *(stream for _, stream in running))
        self._last = max(stream.last for _, stream in running)
        self.history.append(self._last)
        for found, stream in running:
            self._remember(found.content.whole, found.direction, (stream.first, stream.last))
            sent = self.pipeline.send(found.departure, stream.micro_batch, [self._last])
            if not setting.overlaps_pipeline and setting.request is None:
                self.blockers += sent
            self.pipeline.behind.append(self._last)

    def _remember(self, unit: Unit, direction: str, ran: tuple[int, int]) -> None:
        held = self.passes.held(unit, direction)
        self.setting.draft.hold(*ran, held.taken, held.freed)

    def _reduces_now(self, action: Action) -> bool:
        if action.op == "F" or action.op == "I":
            return False
        setting = self.setting
        return setting.reduces_each_micro_batch or (setting.overlaps_gradients and action in self.final)

    # --- units -----------------------------------------------------------------------------------------------------

    def _run_units(self, one: Pass, deps: list[int], action: Action) -> int:
        """Run the units of a pass; returns the last compute task (-1 if there is none)."""
        setting, micro_batch, direction = self.setting, action.micro_batch, one.direction
        content, units = one.content, one.units
        reduce = self._reduces_now(action)
        gather = one.needs_parameters
        if not reduce and not gather and not setting.offloads_activations:
            return self._run_whole(one, deps, micro_batch)
        last = -1
        for index, unit in enumerate(units):
            position = index if direction == "forward" else len(units) - 1 - index
            needs = [*deps, *self._take_blockers()]
            before = last if last >= 0 else self._last
            arrives = gather and not self.parameters.here(content, position)
            if gather:
                needs += [] if before is None else [before]
                needs += self.parameters.gather(content, unit, position, direction, needs, micro_batch)
            key = (content.chunk, position, micro_batch)
            if direction in ("backward", "input gradient") and setting.offloads_activations:
                needs += self.host.fetch_activations(key, unit.layers, self.history, micro_batch)
            if reduce and setting.reduces_each_micro_batch:
                needs += self.gradients.room()
            copies = copies_of(setting, unit, arrives, reduce)
            ran = self.rank.run(
                self.passes.chain(one, unit, index == 0, copies), needs, micro_batch, direction
            )
            if ran is not None:
                last = ran[1]
                self._remember(unit, direction, ran)
                self.history.append(last)
                self.parameters.awaited.append(needs)
                deps = []
                if setting.offloads_activations:
                    self._offload(key, unit, direction, ran)
            if gather and setting.shards_parameters:
                self.parameters.reshard(
                    content, position, direction, index == len(units) - 1, last, micro_batch
                )
            if reduce:
                after = [last] if last >= 0 else []
                ends = self._reduce(unit, after, micro_batch, action in self.final)
                if ran is not None and setting.reduces_each_micro_batch:
                    self.gradients.hold(unit, *ran, ends)
        if last >= 0:
            self._last = last
        return last

    def _run_whole(self, one: Pass, deps: list[int], micro_batch: int) -> int:
        """Where nothing happens between the units, they are one."""
        chain, held = self.passes.whole(one)
        ran = self.rank.run(chain, deps, micro_batch, one.direction)
        if ran is None:
            return -1
        self.setting.draft.hold(*ran, held.taken, held.freed)
        self._last = ran[1]
        return ran[1]

    def _offload(self, key: tuple[int, ...], unit: Unit, direction: str, ran: tuple[int, int]) -> None:
        """What a unit keeps for backward appears as it runs forward, leaves, and is freed after it ran backward."""
        draft, rank_class = self.setting.draft, self.pricing.rank_class
        size = sum(p.layer.offloaded_bytes(p.shard) for p in unit.layers)
        if direction == "forward":
            draft.memory(ran[0], rank_class, "activations", size)
            self.host.evict_activations(key, unit.layers, ran[1], key[-1])
        elif direction != "input gradient":
            draft.memory(ran[1], rank_class, "activations", -size, at_end=True)

    # --- gradients -------------------------------------------------------------------------------------------------

    def _reduce(self, unit: Unit, deps: list[int], micro_batch: int, is_last: bool) -> list[int]:
        """Returns the tasks that end it; what is not overlapped, compute waits for."""
        tasks, ends = self.gradients.reduce(unit, deps, micro_batch, is_last, self.number)
        if not self.setting.overlaps_gradients:
            self.blockers += tasks
        return ends

    def _reduce_rest(self) -> None:
        """Without overlap, everything is reduced after the last backward."""
        setting = self.setting
        if setting.overlaps_gradients or setting.reduces_each_micro_batch:
            return
        deps = self.blockers + ([] if self._last is None else [self._last])
        for content in setting.content_of(self.passes.packs[-1])[self.stage]:
            self._reduce(content.whole, deps, -1, is_last=True)

    def _take_blockers(self) -> list[int]:
        blockers, self.blockers = self.blockers, []
        return blockers
