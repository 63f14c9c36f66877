"""From a workload on a cluster to the program of one training step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from simulator.costs.collectives import CollectiveCalibration, CollectiveCost, GroupShape, collective_cost
from simulator.costs.kernels import calibration_for
from simulator.costs.memory import stage_memory
from simulator.costs.power import rested
from simulator.costs.software import SoftwareProfile
from simulator.description.faults import DescriptionError
from simulator.hardware.cluster import Cluster
from simulator.hardware.gpu import GPU
from simulator.hardware.topology import Topology, build_topology
from simulator.program import shares
from simulator.program.chains import Chain
from simulator.program.communicators import Communicators, FoldedCommunicators
from simulator.program.dealing import Costs, Dealer, halves
from simulator.program.dealing_costs import GivenCosts, priced, room_of, samples, sharding_seconds
from simulator.program.draft import Draft
from simulator.program.layer_chains import LayerChains
from simulator.program.pricing import ClassPricing
from simulator.program.program import Program, Resource
from simulator.program.requests import requests
from simulator.program.setting import Setting, StageView
from simulator.program.step import Step
from simulator.ranks.grid import Grid
from simulator.ranks.layout import Layout
from simulator.ranks.unequal import UnequalStages
from simulator.workloads.micro_batches import MicroBatch, Pack, by_row
from simulator.workloads.operators import Kernel
from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class BuildOptions:
    """`fold`: simulate interchangeable ranks once. `collapse`: chains that meet nobody become one task.

    `merge`: so do launches that nobody can be waiting for.
    """

    fold: bool = True
    collapse: bool = True
    merge: bool = True


@dataclass(frozen=True)
class Built:
    """The program with what it was built from."""

    program: Program
    settings: Sequence[Setting]
    communicators: FoldedCommunicators
    stage_of_class: tuple[int, ...]
    pricings: Sequence[ClassPricing]
    """By rank class."""

    @property
    def setting(self) -> Setting:
        """That of the first stage, which has all in common with others but what follows from unequal degrees."""
        return self.settings[0]


MOST_TASKS = 8_000_000  # about 2 GB


@dataclass
class Blueprint:
    """All of a step but its number of micro-batches: rank classes, prices, and chains as they are priced.

    `settings` by stage; one object, where all stages have equal degrees.
    """

    settings: Sequence[Setting]
    communicators: FoldedCommunicators
    pricings: list[ClassPricing]
    stage_of_class: tuple[int, ...]
    chains: list[dict[Hashable, Chain]]
    layers: LayerChains = field(default_factory=LayerChains)

    @property
    def setting(self) -> Setting:
        """That of the first stage (see `Built`)."""
        return self.settings[0]

    def build(self, num_micro_batches: int | None = None, num_steps: int = 1) -> Built:
        """The program of a step, of another number of micro-batches if one is given; or of several, run together."""
        folded = self.communicators
        members = np.bincount(folded.folding.rank_class).tolist()
        ranks = folded.representatives.tolist()
        names = [f"stage {s} (rank {r})" for s, r in zip(self.stage_of_class, ranks, strict=True)]
        draft = Draft(resources_of(folded), names, members)
        for setting in self.settings:
            setting.num_scheduled = num_micro_batches or setting.num_micro_batches
            setting.num_steps, setting.draft = num_steps, draft
        for pricing, stage, chains in zip(self.pricings, self.stage_of_class, self.chains, strict=True):
            Step(self.settings[stage], pricing, stage, chains, self.layers).build()
            if pricing is self.pricings[0]:
                self._check_size(len(draft) * len(self.pricings))
        return Built(draft.finish(), self.settings, folded, self.stage_of_class, self.pricings)

    def _check_size(self, tasks: int) -> None:
        """Refuse a step of far more tasks than memory holds, which only ranks of very many kinds make."""
        if tasks > MOST_TASKS:
            workload, kinds = self.setting.workload, len(self.pricings)
            message = (
                f"this layout makes ranks of {kinds} kinds, for {tasks / 1e6:.0f} million tasks of which "
                f"{MOST_TASKS / 1e6:.0f} million can be simulated: replicas lie across nodes in ever different ways. "
                "Degrees that divide the GPUs of a node, or replicas side by side (order: [tp, cp, pp, dp]), make few"
            )
            raise DescriptionError([workload.fault("plan.order", message)])


def blueprint(
    cluster: Cluster,
    workload: Workload,
    software: SoftwareProfile,
    library: CollectiveCalibration,
    options: BuildOptions = BuildOptions(),
) -> Blueprint:
    """Price the plan and fold the ranks. The plan must fit the cluster (`Workload.faults_on` is empty)."""
    plan, topology = workload.plan, build_topology(cluster)
    settings = _settings(cluster, topology, workload, software, library, options)
    setting, pp = settings[0], plan.pp
    groups = communicators(cluster, setting.layout, library)
    setting.parts = _parts(setting, topology)
    if workload.deals:
        packs, expected = _dealt(setting, groups, topology)
        settings = [replace(setting, num_micro_batches=len(packs), packs=packs, expected=expected)] * pp
    elif workload.data is not None:
        setting.packs = by_row(workload, cluster.num_gpus)
    setting = settings[0]
    different = settings if plan.stages else settings[:1]
    folded = groups.fold(requests(different), options.fold, setting.roles)
    pricings = _pricings(settings, folded, topology)
    if plan.replica_batches != "even":
        setting.replica_counts = _replica_counts(setting, pricings)
        by_slot = tuple(count for count in setting.replica_counts for _ in range(setting.grid.cp))
        folded = groups.fold(requests([setting]), options.fold, by_slot)
        pricings = _pricings(settings, folded, topology)
    return Blueprint(settings, folded, pricings, tuple(folded.stages.tolist()), [{} for _ in pricings])


def _settings(
    cluster: Cluster,
    topology: Topology,
    workload: Workload,
    software: SoftwareProfile,
    library: CollectiveCalibration,
    options: BuildOptions,
) -> list[Setting]:
    """By stage: one object, where all have equal degrees."""
    grids = [Grid.of(view.plan, cluster.num_gpus) for view in workload.by_stage]
    count = workload.num_micro_batches(cluster.num_gpus)
    layout = UnequalStages(tuple(replace(grid, pp=1) for grid in grids)) if workload.plan.stages else None
    speeds = () if layout is None else _speeds(layout, topology, workload.precision)
    settings = [
        Setting(
            workload=view,
            software=software,
            grid=grid,
            num_micro_batches=count,
            collapse=options.collapse,
            merge=options.merge,
            threads=library.threads or 1,
            request=library.request,
            num_nodes=cluster.total_nodes,
            view=None if layout is None else StageView(stage, workload, layout, speeds),
        )
        for stage, (view, grid) in enumerate(zip(workload.by_stage, grids, strict=True))
    ]
    return settings if layout is not None else settings * workload.plan.pp


def _speeds(layout: UnequalStages, topology: Topology, precision: str) -> tuple[float, ...]:
    """FLOP/s of the stages, if all GPUs of one are as fast as its slowest."""
    peak = np.array([gpu.peak(precision) for gpu in topology.hardware])[topology.gpu_hardware]
    stage = layout.coordinate("pp")
    return tuple(float(peak[stage == number].min()) * grid.world for number, grid in enumerate(layout.stages))


def _parts(setting: Setting, topology: Topology) -> tuple[float, ...]:
    """ZeRO-3's shard of each slot over the mean; empty where all are equal."""
    grid, parts = setting.grid, setting.plan.zero3.parts
    if parts == "even":
        return ()
    if parts == "proportional":
        peak = np.array([gpu.peak(setting.workload.precision) for gpu in topology.hardware])
        slowest = np.full(grid.dp * grid.cp, np.inf)
        np.minimum.at(slowest, grid.slots, peak[topology.gpu_hardware[: grid.world]])
        parts = tuple(slowest.tolist())
    return tuple(part * len(parts) / sum(parts) for part in parts)


def _dealt(
    setting: Setting, groups: Communicators, topology: Topology
) -> tuple[tuple[MicroBatch, ...], float]:
    """The micro-batches of documents that are dealt to groups of GPUs, and the seconds expected of them.

    `setting` is used up for prices. Raises DescriptionError where a document finds no room.
    """
    workload, grid, pp = setting.workload, setting.grid, setting.plan.pp
    dealing, longest = workload.plan.dealing, max(workload.documents)
    widths = (grid.cp,) if dealing.groups == "static" else halves(grid.cp)
    capacity = min(gpu.memory.total for gpu in topology.hardware)
    room = dealing.tokens_per_gpu or room_of(setting, capacity, widths)
    if widths[-1] * room < longest:
        message = (
            f"the longest document has {longest} tokens, but {widths[-1]} GPUs have room for {room} each"
        )
        raise DescriptionError([workload.fault("plan.cp", message)])
    costs: Costs
    if dealing.costs is not None:
        costs, floor = GivenCosts(dealing.costs), 0.0
    else:
        setting.packs = samples(widths, room, longest, grid.dp * grid.cp)
        pricings = _pricings([setting] * pp, groups.fold(requests([setting])), topology)
        costs = priced(setting, pricings, widths, room, longest)
        floor = max(sharding_seconds(setting, pricing) for pricing in pricings)
    dealer = Dealer(grid.dp * grid.cp, widths, room, costs, floor, pp)
    step = dealer.deal(workload.documents, dealing.groups, dealing.rule)
    packs = (
        tuple(Pack(width, (lengths,) if lengths else ()) for width, lengths in one.groups) for one in step
    )
    return tuple(packs), dealer.seconds(step)


def _pricings(
    settings: Sequence[Setting], folded: FoldedCommunicators, topology: Topology
) -> list[ClassPricing]:
    """What operations cost each rank class; `settings` by stage."""
    gpus = topology.gpu_hardware[folded.representatives].tolist()
    measured = [calibration_for(gpu) for gpu in topology.hardware]
    known: dict[tuple[int, ...], dict[Kernel, tuple[float, ...]]] = {}
    pricings = []
    alike = len(set(gpus)) == 1
    axes = (*LOCKSTEP, *settings[0].context_axes)
    for setting in settings:
        setting.communicators = folded
    for rank_class, together in enumerate(
        [(c,) for c in range(len(gpus))] if alike else lockstep(folded, axes)
    ):
        kinds = dict.fromkeys(gpus[other] for other in together)
        stage = int(folded.stages[rank_class])
        setting = settings[stage]
        held = [_holding(setting, topology.hardware[kind], stage) for kind in kinds]
        limited = [(gpu, measured[kind]) for (gpu, _), kind in zip(held, kinds, strict=True)]
        priced = tuple([(gpu, rested(calibration)) for gpu, calibration in limited])
        times = known.setdefault(tuple(id(gpu) for gpu, _ in priced), {})
        pricing = ClassPricing(
            rank_class,
            priced,
            (1.0,) * len(priced),
            setting.software,
            folded,
            known=times,
            update_factor=max(factor for _, factor in held),
            exchange_sms=setting.plan.experts.exchange_sms,
        )
        packs = setting.packs_of(rank_class)
        pricings.append(pricing.under_power_limit(setting.operations(stage, packs), limited))
    return pricings


def _holding(setting: Setting, gpu: GPU, stage: int) -> tuple[GPU, float]:
    """The GPU as kernels of the stage see it: slower where its job spills into the memory's expansion.

    And the factor by which the update, whose state may lie there first, is slower still.
    """
    if gpu.memory.expansion is None:
        return gpu, 1.0
    layers = [[placed.layer for placed in content.layers] for content in setting.content[stage]]
    needed = stage_memory(
        layers, stage, setting.workload, setting.shard, setting.grid.world, setting.software.memory
    )
    total, state = sum(needed.values()), needed["optimizer"]
    bandwidth = gpu.memory.bandwidth_for(total, state)
    memory = gpu.memory.model_copy(update={"bandwidth": bandwidth})
    return gpu.model_copy(update={"memory": memory}), bandwidth / gpu.memory.update_bandwidth(total, state)


def _replica_counts(setting: Setting, pricings: Sequence[ClassPricing]) -> tuple[int, ...]:
    """Micro-batches of each replica, as the plan divides them."""
    plan, grid, folded = setting.plan, setting.grid, setting.communicators
    total = setting.workload.global_batch // plan.micro_batch
    if not isinstance(plan.replica_batches, str):
        return plan.replica_batches
    peaks = [pricing.gpus[0][0].peak(setting.workload.precision) for pricing in pricings]
    stages = grid.coordinate("pp")[folded.representatives].tolist()
    times = [
        pricing.seconds(setting.operations(stage)) for pricing, stage in zip(pricings, stages, strict=True)
    ]
    replica = grid.coordinate("dp")
    ranks = [np.unique(folded.folding.rank_class[replica == i]).tolist() for i in range(grid.dp)]
    if plan.replica_batches == "proportional":
        return shares.proportional(total, [min(peaks[c] for c in classes) for classes in ranks])
    return shares.balanced(total, [max(times[c] for c in classes) for classes in ranks])


def build(
    cluster: Cluster,
    workload: Workload,
    software: SoftwareProfile,
    library: CollectiveCalibration,
    options: BuildOptions = BuildOptions(),
) -> Built:
    """The program of one step."""
    return blueprint(cluster, workload, software, library, options).build()


LOCKSTEP = ("tp", "cp", "ep")
"""Axes whose collectives stand between kernels: members of a group go through the same phases together."""


def lockstep(folded: FoldedCommunicators, axes: Sequence[str] = LOCKSTEP) -> list[tuple[int, ...]]:
    """The rank classes, by rank class, that compute in lockstep with it (itself included)."""
    together = [{rank_class} for rank_class in range(folded.num_classes)]
    for axis in axes:
        for rank_class in range(folded.num_classes):
            joined = set().union(*(together[other] for other in folded.classes(axis, rank_class)))
            for other in joined:
                together[other] = joined
    return [tuple(sorted(classes)) for classes in together]


@lru_cache(maxsize=16)
def communicators(cluster: Cluster, grid: Layout, library: CollectiveCalibration) -> Communicators:
    """The process groups of a layout of ranks on a cluster, kept because many plans and sizes share them."""

    def cost(op: str, size: float, shape: GroupShape) -> CollectiveCost:
        return collective_cost(op, size, shape, library)

    return Communicators(grid, build_topology(cluster), cost)


def resources_of(folded: FoldedCommunicators) -> list[Resource]:
    """One GPU per rank class, then one link per link class."""
    topology, folding = folded.communicators.topology, folded.folding
    sizes = np.bincount(folding.rank_class).tolist()
    ranks = folded.representatives.tolist()
    resources = [Resource(f"gpu {rank}", "gpu", 1.0, size) for rank, size in zip(ranks, sizes, strict=True)]
    links = folded.link_representatives.tolist()
    for link, count in zip(
        links, np.bincount(folding.link_class, minlength=len(links)).tolist(), strict=True
    ):
        name, kind = topology.link_name(link), topology.link_kind(link)
        resources.append(Resource(name, kind, float(topology.capacity[link]), count))
    return resources
