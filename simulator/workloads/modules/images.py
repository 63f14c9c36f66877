"""What the operators of image networks cost: convolution, batch norm, activation, pooling, addition.

A convolution is an implicit GEMM: rows are output pixels, columns output channels, the sum runs over the window
(Chetlur et al. 2014); its patches are read from cache, so that memory sees each input pixel once. `height` and
`width` are those of the input; tensors hold one sample per token.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.operators import Gemm, MemoryBound


@dataclass(frozen=True, kw_only=True)
class Convolution(Module):
    """A window of `kernel` x `kernel` at every `stride`-th pixel, padded so that size divides by the stride.

    `groups` of channels see only each other. `first`: nothing needs the gradient of the input.
    """

    name: str
    source: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    height: int
    width: int
    groups: int = 1
    bias: bool = False
    first: bool = False
    group: str = ""

    @property
    def pixels(self) -> int:
        """Of the output, per sample."""
        return -(-self.height // self.stride) * -(-self.width // self.stride)

    @property
    def _area(self) -> int:
        return self.inputs // self.groups * self.kernel**2

    @property
    def _reuse(self) -> float:
        """Windows that an input pixel lies in."""
        return max(1.0, self.kernel**2 * self.pixels / (self.height * self.width))

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(matrices=self.outputs * self._area, vectors=self.outputs if self.bias else 0)

    def forward(self, shard: Shard) -> list[Operation]:
        rows, columns = shard.tokens * self.pixels, self.outputs // self.groups
        gemm = Gemm(rows, columns, self._area, shard.gemm_dtype, self.groups, reuse=self._reuse)
        return [Operation(f"{self.name}.forward", gemm)]

    def backward(self, shard: Shard) -> list[Operation]:
        rows, columns = shard.tokens * self.pixels, self.outputs // self.groups
        operations = (
            [] if self.first else [Operation(f"{self.name}.input_gradient", self._input_gradient(shard))]
        )
        label = f"{self.name}.weight_gradient"
        if self.kernel == 1:
            gemm = Gemm(columns, self._area, rows, shard.gemm_dtype, self.groups)
        else:  # transposed, so that the patches are the operand that is used over
            gemm = Gemm(self._area, columns, rows, shard.gemm_dtype, self.groups, reuse=self._reuse)
        operations.append(Operation(label, gemm, weight_gradient=True))
        if self.bias:
            what = MemoryBound("reduce", float(rows * self.outputs) * shard.bytes, 0.0)
            operations.append(Operation(f"{self.name}.bias_gradient", what, weight_gradient=True))
        return operations

    def _input_gradient(self, shard: Shard) -> Gemm:
        """Of every input pixel, over the outputs whose windows it lies in: as many products as forward."""
        pixels = self.height * self.width
        depth = round(self.outputs // self.groups * self.kernel**2 * self.pixels / pixels)
        inputs = self.inputs // self.groups
        reuse = max(1.0, depth * pixels / (self.outputs // self.groups * self.pixels))
        return Gemm(shard.tokens * pixels, inputs, depth, shard.gemm_dtype, self.groups, reuse=reuse)

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(self.source, shard.tokens * self.inputs * self.height * self.width * shard.bytes)]

    def transient_bytes(self, shard: Shard) -> float:
        elements = self.inputs * self.height * self.width + self.outputs * self.pixels
        return shard.tokens * elements * shard.bytes


@dataclass(frozen=True, kw_only=True)
class Pointwise(Module):
    """An operator that reads and writes whole tensors of `elements` per sample.

    `passes`: tensors moved forward (read, written) and backward (read, written). `keeps` names the tensors kept:
    "input", "output", or neither. `vectors`: parameters. `op` says which achieved bandwidth applies.
    """

    name: str
    source: str
    op: str
    elements: int
    passes: tuple[float, float, float, float]
    keeps: str = ""
    vectors: int = 0
    group: str = ""

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(vectors=self.vectors)

    def forward(self, shard: Shard) -> list[Operation]:
        return self._moved(self.op, "forward", self.passes[:2], shard)

    def backward(self, shard: Shard) -> list[Operation]:
        return self._moved(f"{self.op}_backward", "backward", self.passes[2:], shard)

    def _moved(self, op: str, label: str, passes: tuple[float, ...], shard: Shard) -> list[Operation]:
        size = self._size(shard)
        if not any(passes):
            return []
        return [Operation(f"{self.name}.{label}", MemoryBound(op, passes[0] * size, passes[1] * size))]

    def saved(self, shard: Shard) -> list[Saved]:
        if not self.keeps:
            return []
        return [Saved(self.source if self.keeps == "input" else self.name, self._size(shard))]

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._size(shard)

    def _size(self, shard: Shard) -> float:
        return shard.tokens * self.elements * shard.bytes


def batch_norm(name: str, source: str, channels: int, pixels: int) -> Pointwise:
    """Statistics, then normalisation: two reads and a write; backward reads input and gradient twice each."""
    elements = channels * pixels
    passes = (2.0, 1.0, 4.0, 1.0)
    return Pointwise(
        name=name,
        source=source,
        op="norm",
        elements=elements,
        passes=passes,
        keeps="input",
        vectors=2 * channels,
    )


def relu(name: str, source: str, elements: int) -> Pointwise:
    """In place; backward looks at its output."""
    passes = (1.0, 1.0, 2.0, 1.0)
    return Pointwise(
        name=name, source=source, op="activation", elements=elements, passes=passes, keeps="output"
    )


def add(name: str, source: str, elements: int) -> Pointwise:
    """Two branches meet; backward adds the gradients that come back through both."""
    return Pointwise(name=name, source=source, op="add", elements=elements, passes=(2.0, 1.0, 2.0, 1.0))


def max_pool(name: str, source: str, channels: int, pixels: int, window: int) -> Pointwise:
    """`pixels` of the input per channel, each `window` of them become one; positions are kept (as a tensor)."""
    passes = (1.0 + 1.0 / window, 1.0 / window, 2.0 / window, 1.0)
    return Pointwise(
        name=name, source=source, op="pool", elements=channels * pixels, passes=passes, keeps="output"
    )


def average_pool(name: str, source: str, channels: int, pixels: int) -> Pointwise:
    """The mean of each channel."""
    elements = channels * pixels
    passes = (1.0, 1.0 / pixels, 1.0 / pixels, 1.0)
    return Pointwise(name=name, source=source, op="pool", elements=elements, passes=passes)
