"""How do layers that only sleep behave, to autograd and to every runtime built on it, like real ones?

Forward and backward are an autograd function: they carry out the layer's actions (computing on the virtual device,
collectives on real groups) and produce an output and gradients of the real sizes. Hooks, buckets, prefetching and
communication of the runtime around them are the real thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from simulator.validation.minicluster.recipe import Action, Chunk, LayerRecipe
from simulator.validation.minicluster.virtual_device import VirtualDevice

FLOAT = 4  # bytes


class Communicator:
    """Carries out a layer's collectives on the groups of the rank's axes, on buffers of its own."""

    def __init__(self, rank: int, groups: Mapping[str, tuple[Sequence[int], Any]]) -> None:
        """`groups`: axis → (ranks in order, process group)."""
        self._rank, self._groups = rank, groups
        self._buffers: dict[tuple[str, int], torch.Tensor] = {}

    def start(self, action: Action) -> list[Any]:
        """Begin the collective; returns what to wait for."""
        ranks, group = self._groups[action.axis]
        count = max(len(ranks), round(action.size / FLOAT) // len(ranks) * len(ranks))
        whole, other = self._buffer("whole", count), self._buffer("other", count)
        part = self._buffer("part", count // len(ranks))
        if action.op == "shift":
            return self._pass_on(ranks, group, whole, other)
        started = {
            "all_reduce": lambda: dist.all_reduce(whole, group=group, async_op=True),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group, async_op=True),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group, async_op=True),
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group, async_op=True),
        }[action.op]()
        return [started]

    def _pass_on(
        self, ranks: Sequence[int], group: Any, mine: torch.Tensor, theirs: torch.Tensor
    ) -> list[Any]:
        """Send to the next rank of the ring and receive from the one before."""
        place = ranks.index(self._rank)
        after, before = ranks[(place + 1) % len(ranks)], ranks[place - 1]
        both = [
            dist.P2POp(dist.irecv, theirs, before, group=group),
            dist.P2POp(dist.isend, mine, after, group=group),
        ]
        return list(dist.batch_isend_irecv(both))

    def _buffer(self, use: str, count: int) -> torch.Tensor:
        key = (use, count)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(count)
        return self._buffers[key]


def perform(actions: Sequence[Action], device: VirtualDevice, communicator: Communicator, label: str) -> None:
    """Carry out the actions in order; what is asynchronous is awaited where asked for, or at the end."""
    under_way: dict[str, list[Any]] = {}
    for action in actions:
        for name in action.waits_for:
            _await(under_way.pop(name, []), device)
        if action.op == "compute":
            device.compute(action.seconds, label)
            continue
        works = communicator.start(action)
        if action.asynchronous:
            under_way[action.label] = works
        else:
            _await(works, device)
    for works in under_way.values():
        _await(works, device)


def _await(works: Sequence[Any], device: VirtualDevice) -> None:
    for work in works:
        work.wait()
    if works:
        device.waited()


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, entering: torch.Tensor, weight: torch.Tensor, layer: EmulatedLayer
    ) -> torch.Tensor:
        context.layer = layer
        context.entering_shape = entering.shape
        context.save_for_backward(weight)
        perform(layer.recipe.forward, layer.device, layer.communicator, f"{layer.recipe.name} forward")
        return entering.new_zeros(layer.output_elements)

    @staticmethod
    def backward(context: Any, *leaving: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        (weight,) = context.saved_tensors
        layer = context.layer
        perform(layer.recipe.backward, layer.device, layer.communicator, f"{layer.recipe.name} backward")
        gradient = torch.zeros_like(weight) if layer.keeps_gradient else None
        return leaving[0].new_zeros(context.entering_shape), gradient, None


class EmulatedLayer(nn.Module):
    """One layer; all its parameters are one vector, so that a runtime handles them together.

    Only gradients that a runtime sends are made: adding up others takes the host time that a GPU would not.
    """

    def __init__(
        self,
        recipe: LayerRecipe,
        device: VirtualDevice,
        communicator: Communicator,
        output_elements: int,
        keeps_gradient: bool,
    ) -> None:
        super().__init__()
        self.recipe, self.device, self.communicator = recipe, device, communicator
        self.keeps_gradient = keeps_gradient
        self.output_elements = output_elements
        self.weight = nn.Parameter(torch.zeros(max(1, recipe.num_parameters)))

    def forward(self, entering: torch.Tensor) -> torch.Tensor:
        # Even the first layer's input needs a gradient, or autograd would skip part of its backward.
        if not entering.requires_grad:
            entering = entering.detach().requires_grad_()
        return _Run.apply(entering, self.weight, self)


class EmulatedChunk(nn.Sequential):
    """The layers of one virtual stage. Tensors inside are tiny; only what crosses to another stage has its size."""

    def __init__(
        self, chunk: Chunk, device: VirtualDevice, communicator: Communicator, keeps_gradients: bool
    ) -> None:
        last = len(chunk.layers) - 1
        leaving = max(1, round(chunk.output_size / FLOAT))
        super().__init__(
            *(
                EmulatedLayer(layer, device, communicator, leaving if number == last else 1, keeps_gradients)
                for number, layer in enumerate(chunk.layers)
            )
        )
        self.input_elements = max(1, round(chunk.input_size / FLOAT))
