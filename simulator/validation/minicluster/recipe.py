"""What is each rank asked to run, so that it does what the simulator predicts for a workload on a cluster?

The simulator's own layers say which kernels and collectives run in which order; its kernel models say how long each
kernel takes on the rank's accelerator. Runs of kernels become one stretch of computing (seconds), collectives stay
what they are (operation, axis, bytes). How and when gradients and boundary tensors move is left to the real runtime.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from simulator.workloads.operators import Collective

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.gpu import GPU
    from simulator.program.builder import Built
    from simulator.program.setting import Setting
    from simulator.program.units import Placed
    from simulator.workloads.layers import Operation
    from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class Action:
    """One stretch of computing (`op` compute, `seconds`), or one collective over `axis` (`size` in bytes).

    An asynchronous collective runs on until an action that `waits_for` its label, or until the layer's end.
    """

    op: str
    seconds: float = 0.0
    axis: str = ""
    size: float = 0.0
    label: str = ""
    asynchronous: bool = False
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerRecipe:
    """One layer as one rank runs it."""

    name: str
    num_parameters: int
    forward: tuple[Action, ...]
    backward: tuple[Action, ...]


@dataclass(frozen=True)
class Chunk:
    """Consecutive layers of one virtual stage; `output_size` bytes go on to the next (0: nothing does)."""

    virtual: int
    layers: tuple[LayerRecipe, ...]
    input_size: float
    output_size: float


@dataclass(frozen=True)
class Recipe:
    """Everything one rank needs. `groups` maps axis to the ranks, in order, of this rank's group on it.

    Axis dp_cp is that of gradients: replicas, and ranks that hold other tokens of the same sequences.
    """

    rank: int
    num_ranks: int
    degrees: dict[str, int]
    groups: dict[str, tuple[int, ...]]
    all_groups: dict[str, tuple[tuple[int, ...], ...]]
    chunks: tuple[Chunk, ...]
    num_micro_batches: int
    schedule: str
    zero: int
    bucket_size: float
    prefetch: int
    reshard_after_forward: bool
    optimizer_seconds: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def from_json(line: str) -> Recipe:
    """The recipe that `Recipe.to_json` wrote."""
    fields = json.loads(line)
    chunks = tuple(
        Chunk(**{**chunk, "layers": tuple(_layer_from(layer) for layer in chunk["layers"])})
        for chunk in fields.pop("chunks")
    )
    groups = {axis: tuple(ranks) for axis, ranks in fields.pop("groups").items()}
    all_groups = {axis: tuple(map(tuple, every)) for axis, every in fields.pop("all_groups").items()}
    return Recipe(chunks=chunks, groups=groups, all_groups=all_groups, **fields)


def _layer_from(fields: dict[str, Any]) -> LayerRecipe:
    def actions(every: list[dict[str, Any]]) -> tuple[Action, ...]:
        return tuple(Action(**{**action, "waits_for": tuple(action["waits_for"])}) for action in every)

    return LayerRecipe(
        fields["name"], fields["num_parameters"], actions(fields["forward"]), actions(fields["backward"])
    )


def recipes(cluster: Cluster, workload: Workload) -> list[Recipe]:
    """The recipe of every rank, in rank order. Raises DescriptionError where the plan cannot run on the cluster."""
    from simulator.costs.collectives import library_for
    from simulator.costs.software import load_software
    from simulator.description.faults import DescriptionError
    from simulator.program.builder import BuildOptions, blueprint
    from simulator.simulation import check_runs

    check_runs(cluster, workload)
    if workload.data is not None:
        message = "recipes are of equal micro-batches; leave data out"
        raise DescriptionError([workload.fault("data", message)])
    if workload.plan.stages:
        message = "recipes are of stages of equal degrees; give tp and dp instead"
        raise DescriptionError([workload.fault("plan.stages", message)])
    software = load_software(workload.plan.software)
    library = library_for(cluster.nodes[0], cluster.software)
    built = blueprint(cluster, workload, software, library, BuildOptions(fold=False)).build()
    updates = _optimizer_seconds(built)
    nodes = enumerate(cluster.nodes)
    return [_recipe(built.setting, rank, node.gpu, updates[rank]) for rank, node in nodes]


def _recipe(setting: Setting, rank: int, gpu: GPU, optimizer_seconds: float) -> Recipe:
    plan, grid = setting.plan, setting.grid
    stage = int(grid.coordinate("pp")[rank])
    axes = [axis for axis in ("tp", "cp", "dp_cp", "pp") if grid.size(axis) > 1]
    all_groups = {axis: _groups(setting, axis) for axis in axes}
    chunks = []
    for content in setting.content[stage]:
        before, after = content.virtual - 1, content.virtual
        boundaries = setting.boundary_bytes
        layers = tuple(_layer(setting, placed, gpu) for placed in content.layers)
        entering = boundaries[before] if before >= 0 else 0.0
        leaving = boundaries[after] if after < len(boundaries) else 0.0
        chunks.append(Chunk(content.virtual, layers, entering, leaving))
    return Recipe(
        rank=rank,
        num_ranks=grid.world,
        degrees={axis: grid.size(axis) for axis in axes},
        groups={axis: next(g for g in all_groups[axis] if rank in g) for axis in axes},
        all_groups=all_groups,
        chunks=tuple(chunks),
        num_micro_batches=setting.num_micro_batches,
        schedule=plan.schedule_name,
        zero=plan.zero,
        bucket_size=setting.software.bucket_size if plan.bucket_size is None else plan.bucket_size,
        prefetch=plan.zero3.prefetch,
        reshard_after_forward=plan.zero3.reshard_after_forward,
        optimizer_seconds=optimizer_seconds,
    )


def _groups(setting: Setting, axis: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(rank) for rank in group) for group in setting.grid.groups(axis))


def _layer(setting: Setting, placed: Placed, gpu: GPU) -> LayerRecipe:
    layer, shard = placed.layer, placed.shard
    backward = (*layer.recompute(shard), *layer.backward(shard))
    return LayerRecipe(
        name=layer.name,
        num_parameters=layer.parameters(shard).total,
        forward=_actions(setting, layer.forward(shard), gpu),
        backward=_actions(setting, backward, gpu),
    )


def _actions(setting: Setting, operations: Sequence[Operation], gpu: GPU) -> tuple[Action, ...]:
    """Operations in order; kernels with nothing between them that could wait or overlap are added up."""
    from simulator.costs.kernels import calibration_for, kernel_seconds

    calibration, actions = calibration_for(gpu), list[Action]()
    for operation in operations:
        what = operation.what
        if isinstance(what, Collective):
            if setting.grid.size(what.axis) > 1:
                actions.append(
                    Action(
                        what.op,
                        0.0,
                        what.axis,
                        what.size,
                        operation.label,
                        operation.asynchronous,
                        operation.waits_for,
                    )
                )
            continue
        seconds = kernel_seconds(what, gpu, calibration) / setting.software.compute_efficiency
        if actions and actions[-1].op == "compute" and not operation.waits_for:
            actions[-1] = Action("compute", actions[-1].seconds + seconds, waits_for=actions[-1].waits_for)
        else:
            actions.append(Action("compute", seconds, waits_for=operation.waits_for))
    return tuple(actions)


def _optimizer_seconds(built: Built) -> list[float]:
    """Seconds that the update's kernels take on each rank class, as the builder priced them."""
    seconds = [0.0] * len(built.program.rank_classes)
    for task in built.program.tasks:
        for phase in task.phases:
            if phase.kind == "optimizer" and phase.work > 0.0 and len(task.lanes) == 1:
                seconds[built.program.lanes[task.lanes[0]].rank_class] += phase.work
    return seconds
