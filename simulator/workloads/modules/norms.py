"""What a normalisation costs: LayerNorm and RMSNorm, fused or operator by operator."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.operators import MemoryBound


@dataclass(frozen=True, kw_only=True)
class Norm(Module):
    """LayerNorm or RMSNorm over `width` elements; keeps its input (8 bytes of statistics neglected).

    `residual`: the input also flows around the branch, so backward adds the two gradients. `heads`: the norm
    runs on each of that many heads of a tensor split over tp (query-key norm), else on all tokens.
    """

    name: str
    source: str
    width: int
    kind: str = "layer"  # layer | rms
    bias: bool = True
    residual: bool = True
    heads: int = 0
    group: str = "norm"

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(vectors=self.width * (2 if self.kind == "layer" and self.bias else 1))

    def _elements(self, shard: Shard) -> float:
        if self.heads:
            return float(shard.tokens * max(1, self.heads // shard.tp) * self.width)
        return float(shard.norm_tokens * self.width)

    def forward(self, shard: Shard) -> list[Operation]:
        elements, size = self._elements(shard), shard.bytes
        if shard.fused("norm"):
            what = MemoryBound("norm", elements * size, elements * size, row=self.width * size)
        else:
            # cast to fp32, square (or centre), mean, scale, cast back, multiply by the weight: six kernels
            what = MemoryBound("norm", elements * (2 * size + 16), elements * (2 * size + 12), kernels=6)
        return [Operation(f"{self.name}.forward", what)]

    def backward(self, shard: Shard) -> list[Operation]:
        elements, size = self._elements(shard), shard.bytes
        if shard.fused("norm"):
            # input gradient reads input and output gradient; the weight gradient reads both once more
            what = MemoryBound("norm_backward", 4 * elements * size, elements * size, kernels=3)
        else:
            what = MemoryBound(
                "norm_backward", elements * (4 * size + 32), elements * (2 * size + 24), kernels=12
            )
        operations = [Operation(f"{self.name}.backward", what)]
        if self.residual:
            add = MemoryBound("add", 2 * elements * size, elements * size)
            operations.append(Operation(f"{self.name}.residual_gradient", add))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(self.source, self._elements(shard) * shard.bytes)]

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._elements(shard) * shard.bytes
