"""One training step of one rank class: schedule, gradient reduction, optimizer, in program order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from simulator.costs.memory import gradient_copies, stage_state
from simulator.program.averaging import average_parameters, send_to_neighbours
from simulator.program.chains import Chain, chain_of, joined
from simulator.program.exchange import Exchange, codec_phase, exchanges
from simulator.program.offload import HostTraffic
from simulator.program.optimizer import optimizer_step, parameter_gather
from simulator.program.pipeline import PipelineTraffic, Way
from simulator.program.pricing import ClassPricing
from simulator.program.program import MemoryChange
from simulator.program.rank_builder import RankBuilder
from simulator.program.rounds import Round, rounds
from simulator.program.schedules import Action
from simulator.program.servers import ServerTraffic
from simulator.program.setting import ChunkContent, Setting
from simulator.program.sharding import gathers, kept_units
from simulator.program.side_by_side import (
    Piece,
    Stream,
    backward_pieces,
    forward_pieces,
    run_side_by_side,
)
from simulator.program.units import Placed, Unit, identity
from simulator.workloads.layers import Operation
from simulator.workloads.micro_batches import Pack
from simulator.workloads.operators import DTYPE_BYTES, Collective


@dataclass(frozen=True, slots=True)
class Pass:
    """What all actions of one kind on one chunk have in common.

    `direction`: forward, backward, input gradient or weight gradient. `units` in the order in which they run.
    """

    direction: str
    content: ChunkContent
    units: tuple[Unit, ...]
    arrival: Way | None
    departure: Way | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a unit allocates when the first task of a pass starts, and frees when the last one ends."""

    taken: tuple[MemoryChange, ...]
    freed: tuple[MemoryChange, ...]


DIRECTIONS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


WHOLE_GRADIENTS = 2
"""Units whose gradients may be whole at a time: the next waits until one of them is summed (FSDP, ZeRO-3)."""


@dataclass(slots=True)
class Step:
    """Walks the schedule of one rank class and adds its tasks."""

    setting: Setting
    pricing: ClassPricing
    stage: int
    priced: dict[Hashable, Chain]  # in earlier steps, by content
    rank: RankBuilder = field(init=False)
    host: HostTraffic = field(init=False)
    servers: ServerTraffic = field(init=False)
    pipeline: PipelineTraffic = field(init=False)
    # by kind of action, chunk and pack
    passes: dict[tuple[str, int, Pack | None], Pass] = field(default_factory=dict)
    chains: dict[tuple[int, str, bool], Chain] = field(default_factory=dict)  # by unit
    pieces: dict[tuple[int, str], list[Piece]] = field(default_factory=dict)  # by unit
    held: dict[tuple[int, str], Held] = field(default_factory=dict)  # by unit
    blockers: list[int] = field(default_factory=list)  # tasks the compute stream waits for next
    reductions: list[int] = field(default_factory=list)
    gathered: dict[tuple[int, int], int] = field(default_factory=dict)  # (chunk, unit) -> gather still valid
    kept: dict[int, int] = field(default_factory=dict)  # by part of the model: units that stay gathered
    history: list[int] = field(default_factory=list)  # last tasks of the units computed, for prefetch limits
    summed: list[int] = field(default_factory=list)  # what ended the reductions of sharded units
    awaited: list[list[int]] = field(default_factory=list)  # by units computed: what each waited for
    final: frozenset[Action] = frozenset()  # after which the gradients of a chunk are complete
    number: int = 0  # of the step
    _last: int | None = None
    count: int = field(init=False)  # micro-batches per step
    packs: tuple[Pack | None, ...] = field(init=False)  # what each of them holds

    def __post_init__(self) -> None:
        self.count = self.setting.count_of(self.pricing.rank_class)
        self.packs = self.setting.packs_of(self.pricing.rank_class)
        self.rank = RankBuilder(self.setting, self.pricing.rank_class)
        self.host = HostTraffic(self.setting, self.pricing, self.rank)
        self.servers = ServerTraffic(self.setting, self.pricing, self.rank)
        self.pipeline = PipelineTraffic(self.setting, self.pricing, self.rank, self.stage)

    def build(self) -> None:
        setting, plan = self.setting, self.setting.plan
        self._reside()
        steps = (self.count, setting.num_chunks, setting.num_steps)
        updates = self.count if setting.schedule.updates_each_micro_batch else 1
        for index, actions in enumerate(rounds(setting.schedule, self.stage, plan.pp, *steps)):
            self.number = index // updates
            self._round(actions, begins_step=index % updates == 0)

    def _round(self, actions: Round, begins_step: bool) -> None:
        """Actions up to an update, and the update."""
        setting = self.setting
        overhead = setting.software.step_overhead if begins_step else 0.0
        start = self.rank.host_work("step overhead", overhead, kind="launch")
        self.rank.wait_for([] if start is None else [start])
        self.final, self.reductions = actions.final, []
        if setting.gathers_ahead:
            self._gather_everything()
        sent = send_to_neighbours(setting, self.pricing, self.rank, self.stage, self.blockers)
        self.blockers += self.servers.fetch_rows(self.stage, self.blockers, self.count)
        self.pipeline.begin(self.count)
        for action, beside in self._beside(actions.actions):
            if beside is None:
                self._act(action)
            else:
                self._act_side_by_side(action, beside)
        self._reduce_rest()
        self._reduce_twins()
        self._reduce_tied()
        deps = [*sent, *self.reductions, *self.blockers, *([] if self._last is None else [self._last])]
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
        one = self._pass(action)
        arrived = []
        if one.arrival is not None:
            arrived.append(self.pipeline.receive(one.arrival, micro_batch, self._last))
        last = self._run_units(one, self._take_blockers() + arrived, action)
        if one.departure is not None:
            after = [last] if last >= 0 else []
            if setting.software.backward_awaits_reduction and self._reduces_now(action):
                after = self.reductions + after
            sent = self.pipeline.send(one.departure, micro_batch, after)
            if not setting.overlaps_pipeline and setting.request is None:
                self.blockers.append(
                    sent
                )  # where messages wait for requests, the host's socket takes them in
        self.pipeline.behind.append(self._last)

    def _beside(self, actions: Sequence[Action]) -> Iterator[tuple[Action, Action | None]]:
        """Actions in order, each with the next one where the two run side by side."""
        ops = ("F", "B") if self.setting.schedule.copies > 1 else ("B", "F")
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
            found = self._pass(action)
            needs = list(blockers)
            if found.arrival is not None:
                needs.append(self.pipeline.receive(found.arrival, action.micro_batch, self._last))
            if action.op == "F" and setting.gathers_ahead:
                keys = [(action.chunk, position) for position in range(len(found.units))]
                needs += [self.gathered[key] for key in keys if key in self.gathered]
            pieces = self._pieces(found)
            running.append((found, Stream(pieces, action.micro_batch, found.direction, needs)))
        run_side_by_side(self.rank, *(stream for _, stream in running))
        self._last = max(stream.last for _, stream in running)
        self.history.append(self._last)
        for found, stream in running:
            self._remember(found.content.whole, found.direction, (stream.first, stream.last))
            if found.departure is not None:
                sent = self.pipeline.send(found.departure, stream.micro_batch, [self._last])
                if not setting.overlaps_pipeline and setting.request is None:
                    self.blockers.append(sent)
            self.pipeline.behind.append(self._last)

    def _pieces(self, one: Pass) -> list[Piece]:
        key = (id(one.content.whole), one.direction)
        if key not in self.pieces:
            cut = forward_pieces if one.direction == "forward" else backward_pieces
            found = cut(one.content.whole.layers, self.pricing)
            gathered = 0.0 if one.arrival is None else self._gathered_boundary(one.arrival)
            if gathered:
                arrival = Operation("gather boundary", Collective("all_gather", "tp", gathered))
                chain = chain_of([arrival], self.pricing, "compute", False)
                found = [replace(found[0], chain=chain + found[0].chain), *found[1:]]
            self.pieces[key] = found
        return self.pieces[key]

    def _pass(self, action: Action) -> Pass:
        pack = self.packs[action.micro_batch % len(self.packs)]
        key = (action.op, action.chunk, pack)
        if key not in self.passes:
            self.passes[key] = self._find_pass(*key)
        return self.passes[key]

    def _find_pass(self, op: str, chunk: int, pack: Pack | None) -> Pass:
        content, way = self.setting.content_of(pack)[self.stage][chunk], "F" if op == "F" else "B"
        arrival = departure = None
        if op != "W":
            arrival = self.pipeline.arrival(way, chunk, pack)
            departure = self.pipeline.departure(way, chunk, pack)
        units = content.units if op == "F" else content.units[::-1]
        return Pass(DIRECTIONS[op], content, units, arrival, departure)

    def _remember(self, unit: Unit, direction: str, ran: tuple[int, int]) -> None:
        """What a unit keeps from forward to backward, and what lives only while it runs backward."""
        key = (id(unit), direction)
        if key not in self.held:
            self.held[key] = self._find_held(unit, direction)
        self.setting.draft.changes(ran[0], at_start=self.held[key].taken)
        self.setting.draft.changes(ran[1], at_end=self.held[key].freed)

    def _find_held(self, unit: Unit, direction: str) -> Held:
        kept, working = ("activations", unit.activation_bytes), ("transient", unit.transient_bytes)
        if direction == "forward":
            return Held(self._changes([kept]), ())
        if direction == "weight gradient":
            return Held((), self._changes([("activations", -unit.postponed_bytes)]))
        freed = [("activations", -kept[1]), ("transient", -working[1])]
        if direction == "input gradient":
            freed.append(("activations", unit.postponed_bytes))
        return Held(self._changes([working]), self._changes(freed))

    def _changes(self, amounts: Iterable[tuple[str, float]]) -> tuple[MemoryChange, ...]:
        return tuple(MemoryChange(self.pricing.rank_class, kind, size) for kind, size in amounts if size)

    def _reduces_now(self, action: Action) -> bool:
        setting = self.setting
        if action.op not in ("B", "W"):
            return False
        return setting.reduces_each_micro_batch or (action in self.final and setting.overlaps_gradients)

    # --- units -----------------------------------------------------------------------------------------------------

    def _run_units(self, one: Pass, deps: list[int], action: Action) -> int:
        """Run the units of a pass; returns the last compute task (-1 if there is none)."""
        setting, micro_batch, direction = self.setting, action.micro_batch, one.direction
        content, units = one.content, one.units
        reduce = self._reduces_now(action)
        gather = setting.shards_parameters or (setting.gathers_ahead and direction == "forward")
        gather = gather and direction != "weight gradient"  # which reads no parameters
        if not reduce and not gather and not setting.offloads_activations:
            return self._run_whole(one, deps, micro_batch)
        last = -1
        for index, unit in enumerate(units):
            position = index if direction == "forward" else len(units) - 1 - index
            needs = [*deps, *self._take_blockers()]
            before = last if last >= 0 else self._last
            if gather:
                needs += [] if before is None else [before]
                needs += self._gather(content, unit, position, direction, needs, micro_batch)
            key = (content.chunk, position, micro_batch)
            if direction in ("backward", "input gradient") and setting.offloads_activations:
                needs += self.host.fetch_activations(key, unit.layers, self.history, micro_batch)
            if reduce and setting.shards_parameters:
                needs += self.summed[-WHOLE_GRADIENTS:][:-1]
            ran = self.rank.run(self._chain(one, unit, index == 0), needs, micro_batch, direction)
            if ran is not None:
                last = ran[1]
                self._remember(unit, direction, ran)
                self.history.append(last)
                self.awaited.append(needs)
                deps = []
                if setting.offloads_activations:
                    self._offload(key, unit, direction, ran)
            if gather and setting.shards_parameters:
                self._reshard(content, unit, position, direction, index == len(units) - 1, last, micro_batch)
            if reduce:
                after = [last] if last >= 0 else []
                reduced = self._reduce(unit, after, micro_batch, action in self.final)
                if ran is not None and setting.shards_parameters:
                    self.summed.append([last, *reduced][-1])
                    self._hold_gradients(unit, ran[0], self.summed[-1])
        if last >= 0:
            self._last = last
        return last

    def _run_whole(self, one: Pass, deps: list[int], micro_batch: int) -> int:
        """Where nothing happens between the units, they are one."""
        unit = one.content.whole
        ran = self.rank.run(self._chain(one, unit, True), deps, micro_batch, one.direction)
        if ran is None:
            return -1
        self._remember(unit, one.direction, ran)
        self._last = ran[1]
        return ran[1]

    def _hold_gradients(self, unit: Unit, made: int, reduced: int) -> None:
        """Whole gradients of a sharded unit: as backward makes them, then in the type that is summed, until summed."""
        setting, rank_class = self.setting, self.pricing.rank_class
        count = sum(count for _, count in gathers(setting, unit, "forward"))
        size = count * DTYPE_BYTES[setting.workload.activation_dtype]
        summed = count * setting.reduction_size if setting.reduction_size * count != size else 0.0
        setting.draft.memory(made, rank_class, "whole gradients", size)
        setting.draft.memory(reduced, rank_class, "whole gradients", summed)
        setting.draft.memory(reduced, rank_class, "whole gradients", -size - summed, at_end=True)

    def _offload(self, key: tuple[int, ...], unit: Unit, direction: str, ran: tuple[int, int]) -> None:
        """What a unit keeps for backward appears as it runs forward, leaves, and is freed after it ran backward."""
        draft, rank_class = self.setting.draft, self.pricing.rank_class
        size = sum(p.layer.offloaded_bytes(p.shard) for p in unit.layers)
        if direction == "forward":
            draft.memory(ran[0], rank_class, "activations", size)
            self.host.evict_activations(key, unit.layers, ran[1], key[-1])
        elif direction != "input gradient":
            draft.memory(ran[1], rank_class, "activations", -size, at_end=True)

    def _chain(self, one: Pass, unit: Unit, is_first: bool) -> Chain:
        key = (id(unit), one.direction, is_first)
        if key not in self.chains:
            self.chains[key] = self._find_chain(one, unit, is_first)
        return self.chains[key]

    def _find_chain(self, one: Pass, unit: Unit, is_first: bool) -> Chain:
        """Equal layers have one chain, wherever they stand."""
        layers = unit.layers if one.direction == "forward" else unit.layers[::-1]
        gathered = 0.0 if one.arrival is None or not is_first else self._gathered_boundary(one.arrival)
        key = (identity(layers), one.direction, gathered)
        if key not in self.priced:
            parts = [self._layer_chain(placed, one.direction) for placed in layers]
            if gathered:
                arrival = Operation("gather boundary", Collective("all_gather", "tp", gathered))
                parts.insert(0, chain_of([arrival], self.pricing, "compute", False))
            self.priced[key] = joined(parts)
        return self.priced[key]

    def _gathered_boundary(self, arrival: Way) -> float:
        """Bytes of a boundary tensor that was cut over tp for the way and is gathered first; 0 if it was not."""
        return arrival.size * self.setting.scatter if self.setting.scatter > 1 else 0.0

    def _layer_chain(self, placed: Placed, direction: str) -> Chain:
        key = ((id(placed.layer), id(placed.shard)), direction)
        if key not in self.priced:
            layer, shard = placed.layer, placed.shard
            if direction == "forward":
                chain = chain_of(layer.forward(shard), self.pricing, "compute", False)
            elif direction == "weight gradient":
                chain = chain_of(layer.weight_gradient(shard), self.pricing, "compute", True)
            elif direction == "input gradient":
                again = chain_of(layer.recompute(shard), self.pricing, "recompute", False)
                chain = again + chain_of(layer.input_gradient(shard), self.pricing, "compute", True)
            else:
                again = chain_of(layer.recompute(shard), self.pricing, "recompute", False)
                chain = again + chain_of(layer.backward(shard), self.pricing, "compute", True)
            self.priced[key] = chain
        return self.priced[key]

    # --- sharded parameters ----------------------------------------------------------------------------------------

    def _gather_everything(self) -> None:
        """Parameters updated by the last step are gathered while the first forward runs."""
        for content in self.setting.content[self.stage]:
            for position, unit in enumerate(content.units):
                task = self._gather_task(unit, "forward", self.blockers, -1)
                if task is not None:
                    self.gathered[(content.chunk, position)] = task

    def _gather(
        self,
        content: ChunkContent,
        unit: Unit,
        position: int,
        direction: str,
        needs: list[int],
        micro_batch: int,
    ) -> list[int]:
        """Tasks that bring the parameters of a unit that `needs` tasks besides.

        The gather is issued when the unit starts that runs `prefetch` units ahead of it.
        """
        key = (content.chunk, position)
        if key in self.gathered:
            return [self.gathered[key]]
        if not self.setting.shards_parameters:
            return []
        ahead = self.setting.plan.zero3.prefetch
        allowed = needs if ahead == 0 else self.awaited[-ahead] if len(self.awaited) >= ahead else []
        task = self._gather_task(unit, direction, allowed, micro_batch)
        if task is None:
            return []
        self.gathered[key] = task
        draft, rank_class, size = self.setting.draft, self.pricing.rank_class, self._gathered_bytes(unit)
        padded = self.setting.longest_part - 1.0 if self.setting.plan.zero3.unequal == "padded" else 0.0
        buffers = size * (self.setting.software.memory.gather_copies + padded)
        draft.memory(task, rank_class, "gathered parameters", size + buffers)
        draft.memory(task, rank_class, "gathered parameters", -buffers, at_end=True)
        return [task]

    def _gathered_bytes(self, unit: Unit) -> float:
        setting = self.setting
        return sum(count for _, count in gathers(setting, unit, "forward")) * setting.gathered_size

    def _gather_task(self, unit: Unit, direction: str, deps: list[int], micro_batch: int) -> int | None:
        last = None
        if self.setting.shards_parameters:
            self.rank.extra += self.setting.software.zero3_overhead
            deps = self.host.fetch_shard(unit, deps, micro_batch)
        for axis, count in gathers(self.setting, unit, direction):
            transfer = parameter_gather(self.setting, self.pricing, axis, count)
            task = self.rank.communicate(transfer, "dp", "gather parameters", "dp-gather", deps, micro_batch)
            last = task if task is not None else last
        return last

    def _reshard(
        self,
        content: ChunkContent,
        unit: Unit,
        position: int,
        direction: str,
        is_last: bool,
        after: int,
        micro_batch: int,
    ) -> None:
        """Drop gathered parameters, except those that are needed again at once, or kept over the step."""
        setting, key = self.setting, (content.chunk, position)
        keeps = direction == "forward" and (
            not setting.plan.zero3.reshard_after_forward or (is_last and setting.plan.pp == 1)
        )
        if position < self._kept_units(content):
            keeps = direction == "forward" or (micro_batch + 1) % self.count != 0
        if keeps or key not in self.gathered or after < 0:
            return
        del self.gathered[key]
        size = -self._gathered_bytes(unit)
        setting.draft.memory(after, self.pricing.rank_class, "gathered parameters", size, at_end=True)

    def _kept_units(self, content: ChunkContent) -> int:
        """Units of the chunk that stay gathered over the step."""
        if content.virtual not in self.kept:
            self.kept[content.virtual] = kept_units(self.setting, content.units)
        return self.kept[content.virtual]

    # --- gradient reduction ----------------------------------------------------------------------------------------

    def _reduce(self, unit: Unit, deps: Iterable[int], micro_batch: int, is_last: bool) -> list[int]:
        """Returns the tasks that end it."""
        setting = self.setting
        ends: list[int] = []
        if setting.host_gathers:
            prepared = self.rank.host_work("prepare reduction", setting.software.zero3_overhead, [*deps])
            deps = [] if prepared is None else [prepared]
        for chain in exchanges(setting, unit, is_last, self.number):
            needs = list(deps)
            for exchange in chain:
                tasks = self._exchange(exchange, needs, micro_batch)
                if tasks:
                    needs = tasks
                    self.reductions += tasks
                    if not setting.overlaps_gradients:
                        self.blockers += tasks
            ends += needs
        if is_last:
            served = self.servers.sum_dense(unit, list(deps), micro_batch)
            self.reductions += served
            self.reductions += self.servers.sum_rows(unit, list(deps), micro_batch, self.count)
            self.host.evict_gradients(unit, ends, micro_batch)
        return ends

    def _exchange(self, exchange: Exchange, deps: list[int], micro_batch: int) -> list[int]:
        """Encode, reduce, decode; the last of them, or nothing where nothing moves."""
        setting, pricing = self.setting, self.pricing
        transfer = pricing.communicators.transfer(
            exchange.axis, exchange.op, exchange.size, pricing.rank_class
        )
        if transfer is None:
            return []
        needs = self._code("encode", exchange.encoded, deps, micro_batch)
        label = (
            "average parameters" if setting.plan.synchronisation.averages_parameters else "reduce gradients"
        )
        task = self.rank.communicate(transfer, "dp", label, "dp", needs, micro_batch)
        return [] if task is None else self._code("decode", exchange.decoded, [task], micro_batch)

    def _code(self, label: str, count: float, deps: list[int], micro_batch: int) -> list[int]:
        phase = codec_phase(self.setting, self.pricing, label, count) if count else None
        if phase is None:
            return deps
        return [self.setting.draft.add(self.pricing.rank_class, (label,), (phase,), deps, micro_batch)]

    def _reduce_rest(self) -> None:
        """Without overlap, everything is reduced after the last backward."""
        setting = self.setting
        if setting.overlaps_gradients or setting.reduces_each_micro_batch:
            return
        deps = self.blockers + ([] if self._last is None else [self._last])
        for content in setting.content_of(self.packs[-1])[self.stage]:
            self._reduce(content.whole, deps, -1, is_last=True)

    def _reduce_twins(self) -> None:
        """Two stages that hold the same parts of the model add up their gradients."""
        size = self.setting.twin_bytes(self.stage)
        if not size:
            return
        transfer = self.pricing.transfer(Collective("all_reduce", "twins", size))
        deps = self.reductions or ([] if self._last is None else [self._last])
        task = self.rank.communicate(transfer, "dp", "reduce copies", "dp", deps)
        if task is not None:
            self.reductions.append(task)

    def _reduce_tied(self) -> None:
        """First and last stage add up their gradients of the shared embedding."""
        setting = self.setting
        if not setting.tied_bytes or self.stage not in (0, setting.plan.pp - 1):
            return
        deps = self.reductions[-1:] or ([] if self._last is None else [self._last])
        transfer = self.pricing.communicators.transfer(
            "tied", "all_reduce", setting.tied_bytes, self.pricing.rank_class
        )
        # Without a flush nobody waits: the first stage is p micro-batches behind, the sum enters a later update.
        waits = setting.schedule.flushes
        lane = "dp" if waits else "tied"
        task = self.rank.communicate(transfer, "pp", "reduce tied embedding", lane, deps)
        if task is not None and waits:
            self.reductions.append(task)

    def _take_blockers(self) -> list[int]:
        blockers, self.blockers = self.blockers, []
        return blockers
