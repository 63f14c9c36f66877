"""Everything the builder needs to know about one workload on one cluster, resolved once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from simulator.program.choices import Choices
from simulator.program.communicators import FoldedCommunicators
from simulator.program.contents import ChunkContent, bytes_between, contents
from simulator.program.draft import Draft
from simulator.program.stages import chunks
from simulator.program.units import Placed, Unit
from simulator.ranks.grid import Grid
from simulator.ranks.layout import Layout
from simulator.ranks.unequal import UnequalStages
from simulator.workloads.layers import Layer, Shard
from simulator.workloads.micro_batches import MicroBatch, Pack, pack_at, packed
from simulator.workloads.modules.vocabulary import shareable
from simulator.workloads.operation import Operation
from simulator.workloads.synchronisation import offsets
from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class StageView:
    """The stage of which a setting tells, where stages have unequal degrees: of which job, among which others."""

    stage: int
    job: Workload
    layout: UnequalStages
    speeds: tuple[float, ...]
    """Of all stages: the peaks of their GPUs, by the slowest of each, added up."""


@dataclass
class Setting(Choices):
    """The workload on the grid: what stands on each stage, and what its ranks run.

    Where stages have unequal degrees, each has a setting: the workload as it sees it, on a grid of its own degrees.
    """

    grid: Grid
    num_micro_batches: int
    collapse: bool = True
    merge: bool = True
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
    view: StageView | None = None
    """None where all stages see the same."""
    expected: float | None = None
    """Seconds that whoever dealt documents to groups expected of the micro-batches."""
    draft: Draft = field(init=False, repr=False)
    communicators: FoldedCommunicators = field(init=False, repr=False)
    _contents: dict[Pack | None, list[list[ChunkContent]]] = field(
        init=False, repr=False, default_factory=dict
    )
    _boundaries: dict[Pack | None, list[float]] = field(init=False, repr=False, default_factory=dict)
    _shards: dict[tuple[Shard, Pack], Shard] = field(init=False, repr=False, default_factory=dict)

    # --- job ---------------------------------------------------------------------------------------------------------

    @property
    def job(self) -> Workload:
        """The workload as it was described."""
        return self.workload if self.view is None else self.view.job

    @property
    def layout(self) -> Layout:
        """All ranks of the job."""
        return self.grid if self.view is None else self.view.layout

    @property
    def stages(self) -> Sequence[int]:
        """The pipeline stages of which this tells."""
        return range(self.plan.pp) if self.view is None else (self.view.stage,)

    @property
    def merges_launches(self) -> bool:
        """Whether launches that nobody waits for are one task: in a whole step, of which nothing must repeat itself."""
        return self.merge and self.num_steps == 1 and self.num_scheduled == self.num_micro_batches

    # --- layers ------------------------------------------------------------------------------------------------------

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
            loss_metrics=software.loss_metrics,
            recompute_stops_early=software.recompute_stops_early,
            dtensor=software.dtensor,
            whole_logits=software.whole_logits,
        )

    @cached_property
    def content(self) -> list[list[ChunkContent]]:
        """Chunks by [stage][chunk], with a micro-batch of full samples."""
        return self.content_of(None)

    def content_of(self, pack: Pack | None) -> list[list[ChunkContent]]:
        """Chunks by [stage][chunk] as a group sees them that runs `pack`."""
        if pack not in self._contents:
            shard, kept = (self._as_packed(shard, pack) for shard in (self.shard, self.shard_kept))
            self._contents[pack] = contents(self, self._placed, shard, kept)
        return self._contents[pack]

    @cached_property
    def _placed(self) -> list[list[tuple[Layer, ...]]]:
        """Layers by [stage][chunk]."""
        plan, layers = self.plan, self.workload.layers()
        speeds = () if self.view is None else self.view.speeds
        return chunks(layers, plan.pp, plan.vpp, plan.layers_per_stage, self.placement, speeds)

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

    @cached_property
    def boundary_bytes(self) -> list[float]:
        """Bytes per GPU that cross from each part of the model to the next, per micro-batch of full samples."""
        return self.boundary_bytes_of(None)

    def boundary_bytes_of(self, pack: Pack | None) -> list[float]:
        """Bytes per GPU that cross from each part of the model to the next when a group runs `pack`."""
        if pack not in self._boundaries:
            self._boundaries[pack] = bytes_between(self, self.content_of(pack))
        return self._boundaries[pack]

    def reduced_units(self, content: ChunkContent) -> tuple[Unit, ...]:
        """What of a chunk is reduced together at the end of a step."""
        apart = self.overlaps_gradients or self.reduces_each_micro_batch
        return content.units if apart else (content.whole,)

    @cached_property
    def tied_bytes(self) -> float:
        """Bytes of the shared embedding's gradient that first and last stage add up."""
        if not self.workload.model.tied or self.placement.ends_meet:
            return 0.0
        return shareable(self.content[0][0].layers[0].layer, self.shard) * self.reduction_size

    @property
    def ends_differ(self) -> bool:
        """Whether first and last stage have unequal degrees, so that they split a shared embedding differently."""
        return self.view is not None and not self.view.layout.alike(0, self.plan.pp - 1)

    # --- ranks -------------------------------------------------------------------------------------------------------

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

    def count_of(self, rank_class: int) -> int:
        """Micro-batches that the ranks of a class run per step."""
        if not self.replica_counts:
            return self.num_scheduled
        rank = int(self.communicators.representatives[rank_class])
        return self.replica_counts[int(self.grid.coordinate("dp")[rank])]

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

    # --- who meets whom ----------------------------------------------------------------------------------------------

    def pair_axis(self, source: int, target: int) -> str:
        """The axis of the transfers from one stage to another: every stage sends equally far, wrapping round."""
        step, num_stages = target - source, self.plan.pp
        if num_stages > 2 and abs(step) == num_stages - 1:
            step = -1 if step > 0 else 1
        return f"pair{step:+d}"

    @cached_property
    def hands_out_messages(self) -> bool:
        """A library whose messages wait for requests (gloo) broadcasts in trees of messages."""
        return self.gathers_by_broadcast and self.request is not None

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
    def gpus_per_node(self) -> int:
        return max(1, self.grid.world // self.num_nodes)
