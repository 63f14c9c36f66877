"""Everything the builder needs to know about one workload on one cluster, resolved once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from simulator.costs.memory import stage_memory
from simulator.costs.software import ParameterServers, SoftwareProfile
from simulator.hardware.gpu import GPU
from simulator.program.communicators import FoldedCommunicators, Request
from simulator.program.draft import Draft
from simulator.program.exchange import exchanges
from simulator.program.handing_out import messages
from simulator.program.offload import offload_requests
from simulator.program.schedules import Schedule, find_schedule
from simulator.program.schedules.placement import Placement
from simulator.program.servers import server_requests
from simulator.program.sharding import gather_of, gathers, kept_units, owned_parameters, shares
from simulator.program.stages import chunks
from simulator.program.units import Placed, Unit, buckets, identity, layer_units, one_unit
from simulator.ranks.grid import Grid
from simulator.workloads.layers import Layer, Shard
from simulator.workloads.micro_batches import MicroBatch, Pack, pack_at, packed
from simulator.workloads.operation import Operation
from simulator.workloads.operators import DTYPE_BYTES, Collective
from simulator.workloads.plan import Plan
from simulator.workloads.synchronisation import offsets
from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class ChunkContent:
    """One model chunk of a stage: its layers, and the units that share a collective (forward order)."""

    chunk: int
    virtual: int
    layers: tuple[Placed, ...]
    units: tuple[Unit, ...]
    whole: Unit


@dataclass
class Setting:
    """The workload on the grid: what stands on each stage, and how the software carries it out."""

    workload: Workload
    software: SoftwareProfile
    grid: Grid
    num_micro_batches: int
    collapse: bool = True
    num_scheduled: int = field(init=False, default=0)
    """Micro-batches per step that the program under construction really runs (see `steady_state`)."""
    replica_counts: tuple[int, ...] = field(init=False, default=())
    """Micro-batches of each replica where they differ."""
    num_steps: int = field(init=False, default=1)
    """Steps that it runs one into the other."""
    threads: int = 1
    """Collectives of one group that run at a time (`CollectiveCalibration.threads`)."""
    request: float | None = None
    """Seconds that a receiver's request travels; None: messages need none (`CollectiveCalibration.request`)."""
    num_nodes: int = 1
    steps_at_a_time: float = 1.0
    """Steps of the whole job in one of its slowest replica's, where replicas do not wait for one another."""
    packs: tuple[MicroBatch, ...] = ()
    """What each group runs in each micro-batch where that differs (`Workload.data`)."""
    parts: tuple[float, ...] = ()
    """Size of the shard of each slot (place along cp, then dp) over the mean, where they differ."""
    expected: float | None = None
    """Seconds that whoever dealt documents to groups expected of the micro-batches."""
    draft: Draft = field(init=False, repr=False)
    communicators: FoldedCommunicators = field(init=False, repr=False)
    _kept: dict[int, int] = field(init=False, repr=False, default_factory=dict)
    _contents: dict[Pack | None, list[list[ChunkContent]]] = field(
        init=False, repr=False, default_factory=dict
    )
    _boundaries: dict[Pack | None, list[float]] = field(init=False, repr=False, default_factory=dict)
    _shards: dict[tuple[Shard, Pack], Shard] = field(init=False, repr=False, default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        return self.workload.plan

    @cached_property
    def shard(self) -> Shard:
        """How a GPU sees a layer to which recomputation applies."""
        return self._shard(None)

    @cached_property
    def shard_kept(self) -> Shard:
        """How a GPU sees a layer beyond `recompute_layers`."""
        return self._shard("none")

    def _shard(self, recompute: str | None) -> Shard:
        software = self.software
        return self.workload.shard(
            frozenset(software.fusions),
            software.flash_attention,
            tp_overlap=software.overlap.tp,
            unpads=software.unpads_attention,
            accumulate=self.num_micro_batches > 1,
            recompute=recompute,
            loss_chunks=software.loss_chunks,
        )

    @cached_property
    def content(self) -> list[list[ChunkContent]]:
        """Chunks by [stage][chunk], with a micro-batch of full samples."""
        return self.content_of(None)

    def content_of(self, pack: Pack | None) -> list[list[ChunkContent]]:
        """Chunks by [stage][chunk] as a group sees them that runs `pack`."""
        if pack not in self._contents:
            self._contents[pack] = [
                [self._content(stage, chunk, pack) for chunk in range(len(held))]
                for stage, held in enumerate(self.placement.parts)
            ]
        return self._contents[pack]

    @cached_property
    def _placed(self) -> list[list[tuple[Layer, ...]]]:
        """Layers by [stage][chunk]."""
        plan, layers = self.plan, self.workload.model.layers()
        return chunks(layers, plan.pp, plan.vpp, plan.layers_per_stage, self.placement)

    def _content(self, stage: int, chunk: int, pack: Pack | None) -> ChunkContent:
        limit, placed = self.plan.recompute_layers, self._placed
        shard, shard_kept = (self._as_packed(shard, pack) for shard in (self.shard, self.shard_kept))
        before = sum(layer.kind == "block" for layers in placed[stage][:chunk] for layer in layers)
        layers = []
        for layer in placed[stage][chunk]:
            beyond = limit is not None and layer.kind == "block" and before >= limit
            layers.append(Placed(layer, shard_kept if beyond else shard))
            before += layer.kind == "block"
        if self.shards_parameters or self.offloads_activations:
            units = layer_units(layers)
        elif self.overlaps_gradients or self.reduces_each_micro_batch or self.gathers_ahead:
            size = self.software.bucket_size if self.plan.bucket_size is None else self.plan.bucket_size
            units = buckets(layers, size, self.reduction_size)
        else:
            units = one_unit(layers)
        (whole,) = one_unit(layers)
        part = self.placement.parts[stage][chunk]
        return ChunkContent(chunk, part, tuple(layers), tuple(units), whole)

    def shard_of(self, pack: Pack | None) -> Shard:
        """How a GPU of a group that runs `pack` sees a layer to which recomputation applies."""
        return self._as_packed(self.shard, pack)

    def _as_packed(self, shard: Shard, pack: Pack | None) -> Shard:
        data = self.workload.data
        if pack is None or data is None:
            return shard
        key = (shard, pack)
        if key not in self._shards:  # one object each: chains are kept by it
            self._shards[key] = packed(shard, pack, data, self.workload.sequence_length)
        return self._shards[key]

    def packs_of(self, rank_class: int) -> tuple[Pack | None, ...]:
        """What the ranks of a class run, by micro-batch; a single None where all micro-batches are alike."""
        if not self.packs:
            return (None,)
        slot = int(self.grid.slots[self.communicators.representatives[rank_class]])
        return tuple(pack_at(micro_batch, slot) for micro_batch in self.packs)

    @property
    def varies(self) -> bool:
        """Whether micro-batches differ from one another."""
        return len(set(self.packs)) > 1

    @property
    def distinct_packs(self) -> tuple[Pack | None, ...]:
        """Every pack of the step once; a single None where all micro-batches are alike."""
        return tuple(dict.fromkeys(pack for micro_batch in self.packs for pack in micro_batch)) or (None,)

    @cached_property
    def longest_part(self) -> float:
        """Size of the largest shard over the mean."""
        return max(self.parts, default=1.0)

    def part_of(self, rank_class: int) -> float:
        """Size of the shards of a class over the mean."""
        if not self.parts:
            return 1.0
        return self.parts[int(self.grid.slots[self.communicators.representatives[rank_class]])]

    @property
    def context_axes(self) -> tuple[str, ...]:
        """Axes of the groups that share documents."""
        return tuple(dict.fromkeys(self.shard_of(pack).context_axis for pack in self.distinct_packs))

    @cached_property
    def roles(self) -> tuple[int, ...]:
        """Equal numbers for slots (places along cp, then dp) that run and hold the same all through the step."""
        if not self.packs and not self.parts:
            return ()
        numbers: dict[tuple[object, ...], int] = {}
        every: list[tuple[object, ...]] = [
            (
                self.parts[slot] if self.parts else 1.0,
                *(pack_at(micro_batch, slot) for micro_batch in self.packs),
            )
            for slot in range(self.grid.dp * self.grid.cp)
        ]
        return tuple(numbers.setdefault(role, len(numbers)) for role in every)

    # --- data parallelism --------------------------------------------------------------------------------------------

    @cached_property
    def shards_parameters(self) -> bool:
        return self.plan.zero == 3

    @cached_property
    def gathers_ahead(self) -> bool:
        """Updated parameters are gathered behind the next forward (ZeRO-1 and 2)."""
        at_home = self.plan.offload.optimizer == "none"
        return self.plan.zero in (1, 2) and at_home and self._overlaps("dp_parameters")

    @cached_property
    def gathers_by_broadcast(self) -> bool:
        by_broadcast = self.plan.zero in (1, 2) and self.software.zero1_gather == "broadcast"
        return by_broadcast and not self.gathers_ahead

    @cached_property
    def hands_out_messages(self) -> bool:
        """A library whose messages wait for requests (gloo) broadcasts in trees of messages."""
        return self.gathers_by_broadcast and self.request is not None

    @cached_property
    def overlaps_gradients(self) -> bool:
        return self._overlaps("dp_gradients")

    @cached_property
    def reduces_each_micro_batch(self) -> bool:
        """Sharded gradients cannot be accumulated locally."""
        return self.plan.zero >= 2

    @cached_property
    def exchanges_behind(self) -> bool:
        """Tokens of one micro-batch travel to and from experts while another's are computed on."""
        return self.plan.overlap.ep

    @cached_property
    def overlaps_pipeline(self) -> bool:
        return self._overlaps("pp")

    def _overlaps(self, what: str) -> bool:
        asked = getattr(self.plan.overlap, what)
        return bool(getattr(self.software.overlap, what) if asked is None else asked)

    @cached_property
    def reduction(self) -> str:
        plain = self.plan.zero == 0 or (self.plan.zero == 1 and self.software.zero1 == "all_reduce")
        return "all_reduce" if plain else "reduce_scatter"

    @cached_property
    def reduction_size(self) -> float:
        """Bytes per gradient element where it is summed."""
        return DTYPE_BYTES[self.workload.gradient_dtype]

    @cached_property
    def wire_size(self) -> float:
        """Bytes per gradient element on the wire, before compression."""
        return DTYPE_BYTES[self.plan.synchronisation.wire_dtype or self.workload.gradient_dtype]

    @cached_property
    def encodes_gradients(self) -> bool:
        """Whether kernels prepare gradients for the wire."""
        codec = self.plan.synchronisation.compression
        coded = (
            codec.ratio < 1.0 or codec.encode is not None or codec.decode is not None or not codec.reducible
        )
        return coded or self.wire_size != self.reduction_size

    @cached_property
    def averaged_size(self) -> float:
        """Bytes per parameter that replicas average."""
        return 4.0 if self.workload.master_weights else DTYPE_BYTES[self.workload.parameter_dtype]

    def touched_bytes(self, placed: Sequence[Placed], passes: float) -> float:
        """Gradients, with their numbers, of the rows of tables that so many micro-batches of the layers meet."""
        return sum(p.layer.touched_bytes(p.shard, passes) for p in placed)

    @cached_property
    def server_cost(self) -> ParameterServers:
        """Of the software. Raises ValueError where it does not say (see `simulation.check_runs`)."""
        cost = self.software.servers
        if cost is None:
            raise ValueError(f"{self.software.name} does not say what parameter servers cost")
        return cost

    @cached_property
    def gathers_through_hosts(self) -> bool:
        """Whether rows come to every rank from every host, instead of by an all-gather."""
        return self.software.servers is not None and self.software.servers.gather == "hosts"

    def server_count(self, rows: bool) -> int:
        """Servers that hold rows of tables, or dense parameters."""
        synchronisation = self.plan.synchronisation
        count = min(synchronisation.servers or self.num_nodes, self.num_nodes)
        return min(count, synchronisation.table_parts or count) if rows else count

    @cached_property
    def gpus_per_node(self) -> int:
        return max(1, self.grid.world // self.num_nodes)

    @cached_property
    def cycle(self) -> int:
        """Steps after which replicas meet as in the first one again."""
        synchronisation = self.plan.synchronisation
        if synchronisation.scheme == "local":
            return synchronisation.every
        return synchronisation.num_shuffles(self.grid.dp) if synchronisation.scheme == "groups" else 1

    @cached_property
    def num_groupings(self) -> int:
        """Steps that differ in whom gradients are summed with."""
        return self.cycle if self.plan.synchronisation.scheme == "groups" else 1

    @cached_property
    def gossip_axes(self) -> list[str]:
        """One per neighbour to whom a replica sends its parameters."""
        synchronisation = self.plan.synchronisation
        if synchronisation.scheme != "gossip":
            return []
        return [f"gossip{offset:+d}" for offset in offsets(synchronisation.neighbours, self.grid.dp)]

    @cached_property
    def parameter_size(self) -> float:
        """Bytes per parameter element on the wire: gathered in the type that compute uses."""
        if self.shards_parameters:
            return DTYPE_BYTES[self.plan.zero3.gather_dtype or self.workload.activation_dtype]
        return DTYPE_BYTES[self.workload.parameter_dtype]

    @cached_property
    def gathered_size(self) -> float:
        """Bytes per gathered parameter in memory."""
        widened = self.plan.zero3.gather_dtype == "int8"  # which no kernel computes in
        return DTYPE_BYTES[self.workload.activation_dtype] if widened else self.parameter_size

    @cached_property
    def offloads_activations(self) -> bool:
        return self.plan.offload.activations > 0.0

    def reduced_units(self, content: ChunkContent) -> tuple[Unit, ...]:
        """What of a chunk is reduced together at the end of a step."""
        apart = self.overlaps_gradients or self.reduces_each_micro_batch
        return content.units if apart else (content.whole,)

    def holding(self, gpu: GPU, stage: int) -> GPU:
        """The GPU as kernels of the stage see it: slower where its job spills into the memory's expansion."""
        if gpu.memory.expansion is None:
            return gpu
        needed = sum(
            stage_memory(
                [[placed.layer for placed in content.layers] for content in self.content[stage]],
                stage,
                self.workload,
                self.shard,
                self.grid.world,
                self.software.memory,
            ).values()
        )
        bandwidth = gpu.memory.bandwidth_for(needed)
        return gpu.model_copy(update={"memory": gpu.memory.model_copy(update={"bandwidth": bandwidth})})

    # --- pipeline ----------------------------------------------------------------------------------------------------

    @cached_property
    def host_waits(self) -> bool:
        """The host waits for every pipeline transfer before it launches more."""
        return self.software.synchronous_p2p and self.plan.pp > 1

    @cached_property
    def host_gathers(self) -> bool:
        """The host takes part in gathers and reductions of sharded parameters, and computes nothing meanwhile."""
        return self.shards_parameters and self.software.zero3_overhead > 0.0

    @cached_property
    def overlaps_steps(self) -> bool:
        """A stage goes on to the next step while others are still in this one."""
        return self.plan.overlap.steps or not self.schedule.flushes

    @cached_property
    def schedule(self) -> Schedule:
        found = find_schedule(self.plan.schedule_name)
        if found is None:
            raise KeyError(self.plan.schedule_name)  # the plan was not checked
        return found

    @cached_property
    def placement(self) -> Placement:
        """Which part of the model stands where."""
        return self.schedule.placement(self.plan.pp, self.plan.vpp)

    @cached_property
    def num_chunks(self) -> int:
        """Model chunks on every stage."""
        return len(self.placement.parts[0])

    def pair_axis(self, source: int, target: int) -> str:
        """The axis of the transfers from one stage to another: every stage sends equally far, wrapping round."""
        step, num_stages = target - source, self.plan.pp
        if num_stages > 2 and abs(step) == num_stages - 1:
            step = -1 if step > 0 else 1
        return f"pair{step:+d}"

    @cached_property
    def receives_late(self) -> bool:
        """A stage asks for its input only when it has nothing left to compute.

        Interleaved schedules exchange in lockstep with the sender, ahead of need.
        """
        return not self.overlaps_pipeline and self.num_chunks == 1

    @cached_property
    def boundary_bytes(self) -> list[float]:
        """Bytes per GPU that cross from each part of the model to the next, per micro-batch of full samples."""
        return self.boundary_bytes_of(None)

    def boundary_bytes_of(self, pack: Pack | None) -> list[float]:
        """Bytes per GPU that cross from each part of the model to the next when a group runs `pack`."""
        if pack not in self._boundaries:
            self._boundaries[pack] = self._find_boundaries(pack)
        return self._boundaries[pack]

    def _find_boundaries(self, pack: Pack | None) -> list[float]:
        parts = {content.virtual: content for stage in self.content_of(pack) for content in stage}
        sizes: list[float] = []
        for part in range(self.placement.num_parts - 1):
            content = parts[part]
            if content.layers:
                sizes.append(content.layers[-1].layer.output_bytes(content.layers[-1].shard))
            else:  # an empty chunk hands on what it received
                sizes.append(sizes[-1] if sizes else 0.0)
        return [size / self.scatter for size in sizes]

    @cached_property
    def scatter(self) -> int:
        """Ways in which a boundary tensor is cut before it is sent and gathered after (Narayanan et al. 2021)."""
        asked = self.plan.scatter_gather
        cuts = self.software.scatter_gather if asked is None else asked
        return self.plan.tp if cuts and self.plan.tp > 1 and not self.plan.sequence_parallel else 1

    @cached_property
    def tied_bytes(self) -> float:
        """Bytes of the shared embedding's gradient that first and last stage add up."""
        if not self.workload.model.tied or self.placement.ends_meet:
            return 0.0
        parameters = self.content[0][0].layers[0].layer.parameters(self.shard)
        return parameters.embeddings * self.reduction_size

    def twin_bytes(self, stage: int) -> float:
        """Bytes of a stage's gradients that it adds up with the stage that holds the same parts.

        Each has its own sums over data parallelism by then, shared out where the update is.
        """
        if self.schedule.copies == 1:
            return 0.0
        layers = [placed for content in self.content[stage] for placed in content.layers]
        return owned_parameters(self, layers) * self.reduction_size

    def operations(
        self, stage: int, packs: Sequence[Pack | None] = (None,)
    ) -> Iterator[tuple[Operation, int]]:
        """What a rank of the stage does for these micro-batches: distinct operations, and how often."""
        placed: dict[tuple[int, int], tuple[Placed, int]] = {}
        for pack in packs:
            for content in self.content_of(pack)[stage]:
                for p in content.layers:
                    key = (id(p.layer), id(p.shard))
                    placed[key] = (p, placed[key][1] + 1 if key in placed else 1)
        for p, count in placed.values():
            layer, shard = p.layer, p.shard
            for operation in (*layer.forward(shard), *layer.recompute(shard), *layer.backward(shard)):
                yield operation, count

    def count_of(self, rank_class: int) -> int:
        """Micro-batches that the ranks of a class run per step."""
        if not self.replica_counts:
            return self.num_scheduled
        rank = int(self.communicators.representatives[rank_class])
        return self.replica_counts[int(self.grid.coordinate("dp")[rank])]

    # --- what will be sent ---

    def requests(self) -> Iterator[Request]:
        """Every distinct (axis, operation, bytes) of the step."""
        seen = set()
        packs = self.distinct_packs
        every = [content for pack in packs for stage in self.content_of(pack) for content in stage]
        placed = {identity([one]): one for content in every for one in content.layers}
        for one in placed.values():
            yield from _collectives(one)
        full = [content for stage in self.content for content in stage]
        units = {identity(unit.layers): unit for chunk in full for unit in (*chunk.units, chunk.whole)}
        for unit in units.values():
            seen |= set(self._unit_requests(unit))
        if self.hands_out_messages:
            for number in range(self.plan.pp):
                seen |= set(self._message_requests(number))
        yield from sorted(seen)
        yield from offload_requests(self)
        yield from server_requests(self)
        for size in dict.fromkeys(size for pack in packs for size in self.boundary_bytes_of(pack)):
            for axis in self._pair_axes():
                yield axis, "send_recv", size
            if self.scatter > 1:
                yield "tp", "all_gather", size * self.scatter
        if self.tied_bytes:
            yield "tied", "all_reduce", self.tied_bytes
        for size in filter(None, map(self.twin_bytes, range(self.plan.pp))):
            yield "twins", "all_reduce", size

    def _pair_axes(self) -> list[str]:
        """Every axis on which neighbouring parts exchange, in both directions."""
        placement, found = self.placement, {}
        for stage, held in enumerate(placement.parts):
            for chunk in range(len(held)):
                for step in (1, -1):
                    peer = placement.neighbour(stage, chunk, step)
                    if peer is not None and peer[0] != stage:
                        found[self.pair_axis(stage, peer[0])] = True
        return list(found)

    def _unit_requests(self, unit: Unit) -> Iterator[Request]:
        for is_last, step in ((False, 0), *((True, step) for step in range(self.num_groupings))):
            for chain in exchanges(self, unit, is_last, step):
                for one in chain:
                    yield one.axis, one.op, one.size
        for axis in self.gossip_axes:
            yield axis, "shift", unit.parameters.total * self.averaged_size
        if self.plan.synchronisation.scheme == "local":
            yield "dp", "all_reduce", unit.parameters.total * self.averaged_size
        if not self.plan.zero or self.hands_out_messages:
            return
        for direction in ("forward", "backward"):
            for axis, count in gathers(self, unit, direction):
                op, number = gather_of(self, count)
                yield axis, op, number * self.parameter_size

    def _message_requests(self, stage: int) -> Iterator[Request]:
        for share in shares(self, stage):
            for axis in messages(share, self.grid.size(share.axis)):
                yield axis, "send_recv", share.count * self.parameter_size

    def kept_units(self, content: ChunkContent) -> int:
        """Units of the chunk that stay gathered over the step."""
        if content.virtual not in self._kept:
            self._kept[content.virtual] = kept_units(self, content.units)
        return self._kept[content.virtual]


def _collectives(placed: Placed) -> Iterator[Request]:
    layer, shard = placed.layer, placed.shard
    operations = (*layer.forward(shard), *layer.recompute(shard), *layer.backward(shard))
    for operation in operations:
        if isinstance(operation.what, Collective):
            yield operation.what.axis, operation.what.op, operation.what.size
