"""How is one training step carried out by the real runtime that a recipe asks for?

Each strategy wraps emulated chunks and returns a function that runs one step, optimizer included. Gradients:
DistributedDataParallel; with zero 1 its gradients and ZeroRedundancyOptimizer; with zero 3 FSDP2's fully_shard.
Pipelines: torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from simulator.validation.minicluster.emulated import EmulatedChunk
from simulator.validation.minicluster.recipe import Recipe
from simulator.validation.minicluster.virtual_device import VirtualDevice

Step = Callable[[], None]
MIB = 1 << 20


def build_step(
    recipe: Recipe, chunks: list[EmulatedChunk], device: VirtualDevice, groups: dict[str, Any]
) -> Step:
    """One step of the recipe. Raises ValueError for a combination that no runtime here carries out."""
    wrapped = [_share_out(recipe, chunk, groups) for chunk in chunks]
    update = _optimizer(recipe, chunks, device, groups)
    if len(chunks) == 1 and recipe.degrees.get("pp", 1) == 1:
        run = _plain(recipe, wrapped[0])
    else:
        run = _pipeline(recipe, wrapped, groups["pp"])

    def step() -> None:
        run()
        update()

    return step


def _share_out(recipe: Recipe, chunk: EmulatedChunk, groups: dict[str, Any]) -> nn.Module:
    """Wrap the chunk in what keeps data-parallel replicas together."""
    if "dp_cp" not in recipe.degrees:
        return chunk
    if recipe.zero == 3:
        return _fully_shard(recipe, chunk)
    if recipe.zero in (0, 1):
        return nn.parallel.DistributedDataParallel(
            chunk,
            process_group=groups["dp_cp"],
            bucket_cap_mb=recipe.bucket_size / MIB,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
    raise ValueError(
        f"zero {recipe.zero}: the runtimes here are DDP (0), ZeroRedundancyOptimizer (1), FSDP2 (3)"
    )


def _fully_shard(recipe: Recipe, chunk: EmulatedChunk) -> nn.Module:
    """FSDP2 with one unit per layer; the last, which backward needs at once, is kept, as torchtitan does.

    `prefetch` gathers run ahead explicitly, as there is no stream to run ahead on.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if set(recipe.degrees) != {"dp_cp"}:
        raise ValueError("zero 3 is run over all ranks only")
    mesh = init_device_mesh("cpu", (recipe.degrees["dp_cp"],))
    layers: list[Any] = list(chunk)
    for layer in layers:
        reshards = recipe.reshard_after_forward and layer is not layers[-1]
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshards)
    fully_shard(chunk, mesh=mesh, reshard_after_forward=recipe.reshard_after_forward)
    ahead = recipe.prefetch
    for number, layer in enumerate(layers if ahead else []):
        layer._set_unshard_async_op(True)
        layer.set_modules_to_forward_prefetch(layers[number + 1 : number + 1 + ahead])
        layer.set_modules_to_backward_prefetch(layers[max(0, number - ahead) : number][::-1])
    return chunk


def _optimizer(
    recipe: Recipe, chunks: list[EmulatedChunk], device: VirtualDevice, groups: dict[str, Any]
) -> Step:
    """The update takes its time on the virtual device; with zero 1 the real optimizer then spreads the parameters."""
    parameters = [parameter for chunk in chunks for parameter in chunk.parameters()]
    if recipe.zero != 1 or "dp_cp" not in recipe.degrees:

        def update() -> None:
            device.compute(recipe.optimizer_seconds, "optimizer")
            for parameter in parameters:
                parameter.grad = None

        return update
    from torch.distributed.optim import ZeroRedundancyOptimizer

    optimizer = ZeroRedundancyOptimizer(
        parameters,
        optimizer_class=torch.optim.SGD,
        process_group=groups["dp_cp"],
        parameters_as_bucket_view=True,  # one broadcast per rank, as in PyTorch's own examples
        lr=0.0,
    )

    def sharded_update() -> None:
        device.compute(recipe.optimizer_seconds, "optimizer")
        optimizer.step()
        device.waited()
        optimizer.zero_grad()

    return sharded_update


def _plain(recipe: Recipe, model: nn.Module) -> Step:
    """Micro-batches one after the other; gradients are reduced after the last, sharded ones after each."""

    def run() -> None:
        for number in range(recipe.num_micro_batches):
            last = number == recipe.num_micro_batches - 1
            if isinstance(model, nn.parallel.DistributedDataParallel) and not last:
                with model.no_sync():
                    _forward_backward(model)
            else:
                _forward_backward(model)

    return run


def _forward_backward(model: nn.Module) -> None:
    leaving = model(torch.zeros(1))
    leaving.sum().backward()


def _pipeline(recipe: Recipe, chunks: list[nn.Module], group: Any) -> Step:
    from torch.distributed import pipelining

    num_stages = recipe.degrees["pp"] * len(chunks)
    stages = [
        pipelining.PipelineStage(chunk, described.virtual, num_stages, torch.device("cpu"), group=group)
        for chunk, described in zip(chunks, recipe.chunks, strict=True)
    ]
    kind: Any = {
        "gpipe": pipelining.ScheduleGPipe,
        "1f1b": pipelining.Schedule1F1B,
        "interleaved": pipelining.ScheduleInterleaved1F1B,
    }[recipe.schedule]
    content = stages if recipe.schedule == "interleaved" else stages[0]
    schedule = kind(content, recipe.num_micro_batches, loss_fn=lambda leaving, target: leaving.sum())
    first = any(stage.is_first for stage in stages)
    last = any(stage.is_last for stage in stages)

    def run() -> None:
        entering = (torch.zeros(recipe.num_micro_batches),) if first else ()
        if last:
            schedule.step(*entering, target=torch.zeros(recipe.num_micro_batches), losses=[])
        else:
            schedule.step(*entering)

    return run


def make_groups(recipe: Recipe) -> dict[str, Any]:
    """This rank's process group per axis; every rank makes every group, in the same order."""
    mine: dict[str, Any] = {}
    for axis in sorted(recipe.all_groups):
        for ranks in recipe.all_groups[axis]:
            group = dist.new_group(list(ranks))
            if recipe.rank in ranks:
                mine[axis] = group
    return mine
