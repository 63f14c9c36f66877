"""What a projection costs on a three-dimensional grid of tensor-parallel ranks (AxoNN: X, Y, Z).

Singh et al. 2024 (arXiv 2502.08145): W [inputs, outputs] is split over two of the dimensions, so that outputs are
partial sums over the one that splits inputs, and input gradients over the one that splits outputs; the roles of X and Y
swap from one projection to the next. Z splits the samples, and shares out the weights: they are gathered over it before
use, and their gradients reduced and scattered. With X and Z of one rank this is Megatron's scheme over Y.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Operation, Shard
from simulator.workloads.modules.gemms import cast, projection, weight_gradient
from simulator.workloads.operators import DTYPE_BYTES, Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One rank's part of a projection: W [inputs, sum of widths], with the axes that split either side.

    `forward_axis` splits inputs, so that outputs are summed over it; `backward_axis` splits outputs.
    """

    name: str
    inputs: int
    widths: tuple[int, ...]
    dtype: str
    forward_axis: str
    backward_axis: str
    useful: float = 1.0

    def forward(self, shard: Shard) -> list[Operation]:
        tokens = shard.tokens
        gathers = _weights(self, shard, "weights")
        operations = [*gathers, *cast(self.name, "input", tokens * self.inputs, self.dtype, shard)]
        waits = tuple(one.label for one in gathers if one.asynchronous)
        for width in self.widths:
            gemm = projection(tokens, width, self.inputs, self.dtype)
            operations.append(Operation(f"{self.name}.forward", gemm, useful=self.useful, waits_for=waits))
            waits = ()
        total = tokens * sum(self.widths) * shard.bytes
        return [*operations, *_sum(f"{self.name}.all_reduce", self.forward_axis, total, shard, False)]

    def backward(self, shard: Shard) -> list[Operation]:
        tokens, overlapped = shard.tokens, shard.tp_overlap != "none"
        # weights gathered to recompute this projection are still there
        gathers = [] if shard.recompute == "full" else _weights(self, shard, "weights_again")
        operations = [
            *gathers,
            *cast(self.name, "output_gradient", tokens * sum(self.widths), self.dtype, shard),
        ]
        waits = tuple(one.label for one in gathers if one.asynchronous)
        for width in self.widths:
            gemm = projection(tokens, self.inputs, width, self.dtype)
            label = f"{self.name}.input_gradient"
            operations.append(Operation(label, gemm, useful=self.useful, waits_for=waits))
            waits = ()
        size = tokens * self.inputs * shard.bytes
        operations += _sum(
            f"{self.name}.input_gradient.all_reduce", self.backward_axis, size, shard, overlapped
        )
        for width in self.widths:
            operations += weight_gradient(self.name, width, self.inputs, self.dtype, shard, self.useful)
        if shard.tp_z > 1:
            scatter = Collective("reduce_scatter", "tp_z", self._weight_bytes(shard), shard.dtype)
            label = f"{self.name}.weight_gradient.reduce_scatter"
            operations.append(Operation(label, scatter, asynchronous=overlapped))
        return operations

    def _weight_bytes(self, shard: Shard) -> float:
        """Of the weights that this rank multiplies by, shared out over Z."""
        return self.inputs * sum(self.widths) * DTYPE_BYTES[shard.dtype]


def _weights(tile: Tile, shard: Shard, label: str) -> list[Operation]:
    if shard.tp_z == 1:
        return []
    gather = Collective("all_gather", "tp_z", tile._weight_bytes(shard), shard.dtype)
    return [Operation(f"{tile.name}.{label}", gather, asynchronous=shard.tp_overlap != "none")]


def _sum(label: str, axis: str, size: float, shard: Shard, asynchronous: bool) -> list[Operation]:
    ranks = shard.tp if axis == "tp" else shard.tp_x
    if ranks == 1:
        return []
    return [Operation(label, Collective("all_reduce", axis, size, shard.dtype), asynchronous=asynchronous)]
