"""One training step of one rank class: schedule, gradient reduction, optimizer, in program order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.costs.memory import stage_state
from simulator.program.averaging import average_parameters, send_to_neighbours
from simulator.program.chains import Chain, chain_of, joined, transfer_phase
from simulator.program.exchange import Exchange, codec_phase, exchanges
from simulator.program.offload import HostTraffic
from simulator.program.optimizer import optimizer_step, parameter_gather
from simulator.program.pricing import ClassPricing
from simulator.program.program import Phase
from simulator.program.rank_builder import RankBuilder
from simulator.program.rounds import Round, rounds
from simulator.program.schedules import Action
from simulator.program.schedules.lockstep import Message, asked_after
from simulator.program.setting import ChunkContent, Setting
from simulator.program.sharding import gathers
from simulator.program.units import Placed, Unit
from simulator.workloads.layers import Operation
from simulator.workloads.micro_batches import Pack
from simulator.workloads.operators import Collective

Way = tuple[tuple[Phase, ...], tuple[str, ...], tuple[int, int]]
"""A pipeline transfer's phases, its lanes at this end, and the classes that send and receive it."""


@dataclass(slots=True)
class Step:
    """Walks the schedule of one rank class and adds its tasks."""

    setting: Setting
    pricing: ClassPricing
    stage: int
    chains: dict[tuple[object, str], Chain]  # priced before, by content
    rank: RankBuilder = field(init=False)
    host: HostTraffic = field(init=False)
    ways: dict[tuple[str, tuple[int, int], tuple[int, int], Pack | None], Way] = field(default_factory=dict)
    blockers: list[int] = field(default_factory=list)  # tasks the compute stream waits for next
    reductions: list[int] = field(default_factory=list)
    gathered: dict[tuple[int, int], int] = field(default_factory=dict)  # (chunk, unit) -> gather still valid
    history: list[int] = field(default_factory=list)  # last tasks of the units computed, for prefetch limits
    awaited: list[list[int]] = field(default_factory=list)  # by units computed: what each waited for
    asked: dict[Message, int] = field(
        default_factory=dict
    )  # how many actions are behind when a message is asked for
    behind: list[int | None] = field(default_factory=list)  # by actions done: the last compute task by then
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
        self.rank.sync = [] if start is None else [start]
        self.final, self.reductions = actions.final, []
        if setting.gathers_ahead:
            self._gather_everything()
        sent = send_to_neighbours(setting, self.pricing, self.rank, self.stage, self.blockers)
        if self._asks_ahead:
            pp, chunks = setting.plan.pp, setting.num_chunks
            every = [setting.schedule(stage, pp, self.count, chunks) for stage in range(pp)]
            self.asked, self.behind = asked_after(every, chunks)[self.stage], []
        for action in actions.actions:
            if action.op == "F":
                self._forward(action)
            elif action.op == "W":
                self._weight_gradient(action)
            else:
                self._backward(action)
            self.behind.append(self._last)
        self._reduce_rest()
        self._reduce_tied()
        deps = [*sent, *self.reductions, *self.blockers, *([] if self._last is None else [self._last])]
        self.blockers = optimizer_step(setting, self.pricing, self.rank, self.host, self.stage, deps)
        if setting.plan.synchronisation.scheme == "local" and self.number == setting.num_steps - 1:
            self.blockers = average_parameters(setting, self.pricing, self.rank, self.stage, self.blockers)

    def _reside(self) -> None:
        """What is in memory before the step begins."""
        setting, rank_class = self.setting, self.pricing.rank_class
        layers = [p.layer for content in setting.content[self.stage] for p in content.layers]
        state = stage_state(layers, setting.workload, setting.shard, setting.grid.world)
        versions = setting.schedule.versions(self.stage, setting.plan.pp)
        setting.draft.resident(rank_class, "parameters", state.parameters * versions)
        setting.draft.resident(rank_class, "gradients", state.gradients)
        setting.draft.resident(rank_class, "optimizer", state.optimizer)
        setting.draft.resident(rank_class, "context", setting.software.memory.context)

    # --- forward ---------------------------------------------------------------------------------------------------

    def _forward(self, action: Action) -> None:
        content = self._content(action)
        arrival = self._receive("F", action)
        deps = self._take_blockers() + arrival
        first, last = self._run_units(content, content.units, "forward", deps, action)
        draft, rank_class = self.setting.draft, self.pricing.rank_class
        if first >= 0:
            draft.memory(first, rank_class, "activations", content.activation_bytes)
        self._send("F", action, last)

    # --- backward --------------------------------------------------------------------------------------------------

    def _backward(self, action: Action) -> None:
        """The whole backward, or (action I) only what the stage before waits for."""
        content = self._content(action)
        arrival = self._receive("B", action)
        deps = self._take_blockers() + arrival
        direction = "backward" if action.op == "B" else "input gradient"
        first, last = self._run_units(content, content.units[::-1], direction, deps, action)
        draft, rank_class = self.setting.draft, self.pricing.rank_class
        if first >= 0:
            draft.memory(last, rank_class, "activations", -content.activation_bytes, at_end=True)
            if action.op == "I":
                draft.memory(last, rank_class, "activations", content.postponed_bytes, at_end=True)
            draft.memory(first, rank_class, "transient", content.transient_bytes)
            draft.memory(last, rank_class, "transient", -content.transient_bytes, at_end=True)
        awaits = self._reduces_now(action) and self.setting.software.backward_awaits_reduction
        self._send("B", action, last, self.reductions if awaits else [])

    def _weight_gradient(self, action: Action) -> None:
        """What an input gradient (I) of the same micro-batch left for later."""
        content = self._content(action)
        _, last = self._run_units(
            content, content.units[::-1], "weight gradient", self._take_blockers(), action
        )
        if last >= 0:
            freed = -content.postponed_bytes
            self.setting.draft.memory(last, self.pricing.rank_class, "activations", freed, at_end=True)

    def _reduces_now(self, action: Action) -> bool:
        setting = self.setting
        if action.op not in ("B", "W"):
            return False
        return setting.reduces_each_micro_batch or (action in self.final and setting.overlaps_gradients)

    # --- units -----------------------------------------------------------------------------------------------------

    def _run_units(
        self,
        content: ChunkContent,
        units: Sequence[Unit],
        direction: str,
        deps: list[int],
        action: Action,
    ) -> tuple[int, int]:
        """Run units in the given order; returns the first and the last compute task (-1 if there is none)."""
        setting, micro_batch = self.setting, action.micro_batch
        reduce = self._reduces_now(action)
        gather = setting.shards_parameters or (setting.gathers_ahead and direction == "forward")
        gather = gather and direction != "weight gradient"  # which reads no parameters
        if not reduce and not gather and not setting.offloads_activations:
            units = (content.whole,)
        first = last = -1
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
            chain = self._chain(content, unit, direction, index == 0, micro_batch)
            ran = self.rank.run(chain, needs, micro_batch, direction)
            if ran is not None:
                first = ran[0] if first < 0 else first
                last = ran[1]
                self.history.append(last)
                self.awaited.append(needs)
                deps = []
                if setting.offloads_activations:
                    self._offload(key, unit, direction, ran)
            if gather and setting.shards_parameters:
                self._reshard(content, unit, position, direction, index == len(units) - 1, last, micro_batch)
            if reduce:
                self._reduce(unit, [last] if last >= 0 else [], micro_batch)
        if last >= 0:
            self._last = last
        return first, last

    def _offload(self, key: tuple[int, ...], unit: Unit, direction: str, ran: tuple[int, int]) -> None:
        """What a unit keeps for backward appears as it runs forward, leaves, and is freed after it ran backward."""
        draft, rank_class = self.setting.draft, self.pricing.rank_class
        size = sum(p.layer.offloaded_bytes(p.shard) for p in unit.layers)
        if direction == "forward":
            draft.memory(ran[0], rank_class, "activations", size)
            self.host.evict_activations(key, unit.layers, ran[1], key[-1])
        elif direction != "input gradient":
            draft.memory(ran[1], rank_class, "activations", -size, at_end=True)

    def _chain(
        self, content: ChunkContent, unit: Unit, direction: str, is_first: bool, micro_batch: int
    ) -> Chain:
        key = ((content.virtual, id(unit), is_first), direction)
        if key not in self.chains:
            layers = unit.layers if direction == "forward" else unit.layers[::-1]
            parts = [self._layer_chain(placed, direction) for placed in layers]
            if is_first:
                parts.insert(0, self._arrival_chain(content, direction, micro_batch))
            self.chains[key] = joined(parts)
        return self.chains[key]

    def _arrival_chain(self, content: ChunkContent, direction: str, micro_batch: int) -> Chain:
        """A boundary tensor that was cut over tp for the way is gathered first."""
        setting = self.setting
        boundary = content.virtual - 1 if direction == "forward" else content.virtual
        if setting.scatter == 1 or direction == "weight gradient" or not self._arrives(content, direction):
            return Chain()
        size = setting.boundary_bytes_of(self._pack(micro_batch))[boundary] * setting.scatter
        gather = Operation("gather boundary", Collective("all_gather", "tp", size))
        return chain_of([gather], self.pricing, "compute", False)

    def _layer_chain(self, placed: Placed, direction: str) -> Chain:
        key = ((id(placed.layer), id(placed.shard)), direction)
        if key not in self.chains:
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
            self.chains[key] = chain
        return self.chains[key]

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
        self.setting.draft.memory(
            task, self.pricing.rank_class, "gathered parameters", self._gathered_bytes(unit)
        )
        return [task]

    def _gathered_bytes(self, unit: Unit) -> float:
        setting = self.setting
        return sum(count for _, count in gathers(setting, unit, "forward")) * setting.gathered_size

    def _gather_task(self, unit: Unit, direction: str, deps: list[int], micro_batch: int) -> int | None:
        last = None
        if self.setting.shards_parameters:
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
        if position < setting.kept_units(content):
            keeps = direction == "forward" or (micro_batch + 1) % self.count != 0
        if keeps or key not in self.gathered or after < 0:
            return
        del self.gathered[key]
        size = -self._gathered_bytes(unit)
        setting.draft.memory(after, self.pricing.rank_class, "gathered parameters", size, at_end=True)

    # --- gradient reduction ----------------------------------------------------------------------------------------

    def _reduce(self, unit: Unit, deps: Iterable[int], micro_batch: int) -> None:
        setting = self.setting
        is_last = (micro_batch + 1) % self.count == 0  # also of what belongs to no micro-batch (-1)
        ends: list[int] = []
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
            self.host.evict_gradients(unit, ends, micro_batch)

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
        return [self.setting.draft.add(self.pricing.rank_class, [label], (phase,), deps, micro_batch)]

    def _reduce_rest(self) -> None:
        """Without overlap, everything is reduced after the last backward."""
        setting = self.setting
        if setting.overlaps_gradients or setting.reduces_each_micro_batch:
            return
        deps = self.blockers + ([] if self._last is None else [self._last])
        for content in setting.content_of(self.packs[-1])[self.stage]:
            self._reduce(content.whole, deps, -1)

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

    # --- pipeline --------------------------------------------------------------------------------------------------

    def _receive(self, direction: str, action: Action) -> list[int]:
        """The transfer that brings the input of a forward, or the output gradient of a backward."""
        source = self._peer(action, -1 if direction == "F" else +1)
        return (
            []
            if source is None
            else self._transfer(direction, source, self._place(action), action.micro_batch)
        )

    def _send(self, direction: str, action: Action, after: int, reduced: Sequence[int] = ()) -> None:
        target = self._peer(action, +1 if direction == "F" else -1)
        if target is None:
            return
        tasks = self._transfer(direction, self._place(action), target, action.micro_batch, [*reduced, after])
        if not self.setting.overlaps_pipeline and self.setting.request is None:
            self.blockers += tasks  # where messages wait for requests, the host's socket takes them in

    def _peer(self, action: Action, step: int) -> tuple[int, int] | None:
        """(stage, chunk) on another stage that exchanges with this chunk; None where nothing is sent."""
        found = self.setting.placement.neighbour(self.stage, action.chunk, step)
        return None if found is None or found[0] == self.stage else found

    def _arrives(self, content: ChunkContent, direction: str) -> bool:
        """Whether what the chunk starts from comes from another stage."""
        step = -1 if direction == "forward" else +1
        return self._peer(Action("F", content.chunk, 0), step) is not None

    def _transfer(
        self,
        direction: str,
        source: tuple[int, int],
        target: tuple[int, int],
        micro_batch: int,
        after: Sequence[int] = (),
    ) -> list[int]:
        """Join the transfer between two chunks of different stages; both ends call this once for each."""
        setting, rank_class = self.setting, self.pricing.rank_class
        way = (direction, source, target, self._pack(micro_batch))
        if way not in self.ways:
            self.ways[way] = self._way(*way)
        phases, lanes, (here, there) = self.ways[way]
        self.rank.extra += setting.software.p2p_overhead
        if source[0] == self.stage:
            deps = [task for task in after if task >= 0]
        else:
            deps = [self._last] if setting.receives_late and self._last is not None else []
            if setting.request is not None:
                deps = self._request(
                    here, deps, (direction, setting.placement.parts[target[0]][target[1]], micro_batch)
                )
        key = (direction, here, source, micro_batch)
        task = setting.draft.meet(key, rank_class, lanes, phases, deps, micro_batch)
        if setting.request is not None:
            setting.draft.connect(task, here, there)
        return [task]

    @property
    def _asks_ahead(self) -> bool:
        """Requests matter, and are not made only when nothing is left to compute."""
        return self.setting.request is not None and self.setting.plan.schedule_name == "interleaved"

    def _request(self, sender: int, deps: list[int], message: Message) -> list[int]:
        """Ask the sending class for a message; the request queues behind what is being sent to it."""
        setting, rank_class = self.setting, self.pricing.rank_class
        if self._asks_ahead:
            count = self.asked[message]
            before = self.behind[count - 1] if count else None
            deps = [] if before is None else [before]
        phase = Phase("pp", "request", 0.0, latency=setting.request or 0.0)
        task = setting.draft.add(rank_class, (), (phase,), deps, message[-1])
        setting.draft.connect(task, rank_class, sender)
        return [task]

    def _way(
        self, direction: str, source: tuple[int, int], target: tuple[int, int], pack: Pack | None
    ) -> Way:
        """How every transfer between two chunks goes."""
        setting, sends = self.setting, source[0] == self.stage
        axis = setting.pair_axis(source[0], target[0])
        communicators, place = self.pricing.communicators, 0 if sends else 1
        _, classes = communicators.group(axis, self.pricing.rank_class, place)
        boundary = min(setting.placement.parts[s][c] for s, c in (source, target))
        size = setting.boundary_bytes_of(pack)[boundary]
        transfer = communicators.transfer(axis, "send_recv", size, self.pricing.rank_class, place)
        label = "activation" if direction == "F" else "gradient"
        # An empty tensor still tells the receiver that it may go on.
        phase = Phase("pp", label, 0.0) if transfer is None else transfer_phase(transfer, "pp", label, ())
        lane = f"pp-{'send' if sends else 'recv'}-{'forward' if direction == 'F' else 'backward'}"
        if axis != (
            "pair+1" if direction == "F" else "pair-1"
        ):  # another peer, which does not wait for the usual one
            lane += f"-{axis[4:]}"
        return (phase,), (lane,), (classes[0], classes[-1])

    def _place(self, action: Action) -> tuple[int, int]:
        return self.stage, action.chunk

    def _content(self, action: Action) -> ChunkContent:
        return self.setting.content_of(self._pack(action.micro_batch))[self.stage][action.chunk]

    def _pack(self, micro_batch: int) -> Pack | None:
        return self.packs[micro_batch % len(self.packs)]

    def _take_blockers(self) -> list[int]:
        blockers, self.blockers = self.blockers, []
        return blockers
