"""What the operators between GEMMs cost: activations, residual with dropout, rotary positions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.workloads.layers import Module, Operation, Saved, Shard
from simulator.workloads.modules.gemms import bias_gradient
from simulator.workloads.operators import MemoryBound


@dataclass(frozen=True, kw_only=True)
class Activation(Module):
    """GELU or the like over `width` elements split over tp, with the bias of the projection before it."""

    name: str
    source: str
    width: int
    bias: bool = True
    split: bool = True
    group: str = "mlp_activation"

    def _elements(self, shard: Shard) -> float:
        return (
            float(shard.tokens * (self.width // shard.tp))
            if self.split
            else float(shard.norm_tokens * self.width)
        )

    def forward(self, shard: Shard) -> list[Operation]:
        size = self._elements(shard) * shard.bytes
        if not self.bias or shard.fused("bias_gelu") or shard.fused("bias"):
            return [Operation(f"{self.name}.forward", MemoryBound("activation", size, size))]
        return [
            Operation(f"{self.name}.bias", MemoryBound("bias", size, size)),
            Operation(f"{self.name}.forward", MemoryBound("activation", size, size)),
        ]

    def backward(self, shard: Shard) -> list[Operation]:
        elements = self._elements(shard)
        size = elements * shard.bytes
        operations = [Operation(f"{self.name}.backward", MemoryBound("activation_backward", 2 * size, size))]
        if self.bias:
            operations.append(bias_gradient(self.name, elements, shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(self.source, self._elements(shard) * shard.bytes)]

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._elements(shard) * shard.bytes


def kept_size(size: float, shard: Shard) -> float:
    """Bytes of `size` bytes of a fused gated activation's input as they are kept for backward."""
    return size * (shard.narrow_gated_input or shard.bytes) / shard.bytes


def kept_narrow(name: str, size: float, shard: Shard, backward: bool = False) -> list[Operation]:
    """Casts of both halves of the input, `size` bytes each, to the type in which they are kept, or back."""
    if shard.narrow_gated_input is None:
        return []
    wide, narrow = 2 * size, 2 * kept_size(size, shard)
    ends = (narrow, wide) if backward else (wide, narrow)
    return [Operation(f"{name}.{'widen' if backward else 'keep'}_input", MemoryBound("cast", *ends))]


@dataclass(frozen=True, kw_only=True)
class GatedActivation(Module):
    """silu(gate) * up: reads two tensors of `width` elements (split over tp), writes one (Shazeer 2020)."""

    name: str
    source: str
    width: int
    group: str = "mlp_activation"

    def _size(self, shard: Shard) -> float:
        return shard.tokens * (self.width // shard.tp) * shard.bytes

    def forward(self, shard: Shard) -> list[Operation]:
        size = self._size(shard)
        if shard.fused("swiglu"):
            forward = Operation(f"{self.name}.forward", MemoryBound("activation", 2 * size, size))
            return [forward, *kept_narrow(self.name, size, shard)]
        return [
            Operation(f"{self.name}.silu", MemoryBound("activation", size, size)),
            Operation(f"{self.name}.multiply", MemoryBound("multiply", 2 * size, size)),
        ]

    def backward(self, shard: Shard) -> list[Operation]:
        size = self._size(shard)
        if shard.fused("swiglu"):
            return [
                *kept_narrow(self.name, size, shard, backward=True),
                Operation(f"{self.name}.backward", MemoryBound("activation_backward", 3 * size, 2 * size)),
            ]
        multiply = MemoryBound("multiply", 4 * size, 2 * size, kernels=2)
        silu = MemoryBound("activation_backward", 2 * size, size)
        operations = [
            Operation(f"{self.name}.multiply_backward", multiply),
            Operation(f"{self.name}.silu_backward", silu),
        ]
        if shard.fused("gate_up"):
            # the two gradients are written side by side for the packed projection
            cat = MemoryBound("copy", 2 * size, 2 * size)
            operations.append(Operation(f"{self.name}.concatenate", cat))
        return operations

    def recomputed(self, shard: Shard) -> list[Operation]:
        return self.forward(replace(shard, gated_input_dtype=""))  # what is kept is kept already

    def saved(self, shard: Shard) -> list[Saved]:
        tensors = [Saved(self.source, 2 * kept_size(self._size(shard), shard))]
        if not shard.fused("swiglu"):
            tensors.append(Saved(f"{self.name}.silu", self._size(shard)))
        return tensors

    def transient_bytes(self, shard: Shard) -> float:
        return 3 * self._size(shard)


@dataclass(frozen=True, kw_only=True)
class Residual(Module):
    """residual + dropout(x + bias) over `width` elements; keeps the dropout mask (1 byte each)."""

    name: str
    source: str
    width: int
    bias: bool = True
    dropout: bool = True
    group: str = ""

    def _elements(self, shard: Shard) -> float:
        return float(shard.norm_tokens * self.width)

    def forward(self, shard: Shard) -> list[Operation]:
        elements = self._elements(shard)
        size, mask = elements * shard.bytes, elements if self.dropout else 0.0
        bias = self.bias and not shard.fused("bias")  # else the projection added it
        add = Operation(f"{self.name}.forward", MemoryBound("add", 2 * size, size + mask))
        if shard.fused("bias_dropout_add") or not (bias or self.dropout):
            return [add]
        operations = []
        if bias:
            operations.append(Operation(f"{self.name}.bias", MemoryBound("bias", size, size)))
        if self.dropout:
            operations.append(Operation(f"{self.name}.dropout", MemoryBound("dropout", size, size + mask)))
        return [*operations, Operation(f"{self.name}.forward", MemoryBound("add", 2 * size, size))]

    def backward(self, shard: Shard) -> list[Operation]:
        elements = self._elements(shard)
        operations = []
        if self.dropout:
            what = MemoryBound("dropout_backward", elements * (shard.bytes + 1), elements * shard.bytes)
            operations.append(Operation(f"{self.name}.backward", what))
        if self.bias:
            operations.append(bias_gradient(self.name, elements, shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(f"{self.name}.mask", self._elements(shard))] if self.dropout else []

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._elements(shard) * shard.bytes


@dataclass(frozen=True, kw_only=True)
class Rotary(Module):
    """Rotary positions on queries and keys of `width` elements in all, split over tp (Su et al. 2021).

    Nothing is kept: the angles are constants, and the rotated tensors belong to the attention that follows. `scaled`:
    cosines and sines carry a factor (YaRN), which Transformer Engine's fused rotation does not know: Megatron-Core then
    rotates by PyTorch's own operators (`_apply_rotary_pos_emb_bshd`).
    """

    name: str
    source: str
    width: int
    scaled: bool = False
    group: str = ""

    def forward(self, shard: Shard) -> list[Operation]:
        # queries and keys each: angles; negation of a half and joining, two products, a sum, and joining once more
        return [Operation(f"{self.name}.forward", self._rotate(shard, (6.5, 5.5), 24))]

    def backward(self, shard: Shard) -> list[Operation]:
        # two products, negation, joining, a sum, and the gradient of a slice: zeros, a copy and another sum
        return [Operation(f"{self.name}.backward", self._rotate(shard, (8.5, 8.5), 20))]

    def _rotate(self, shard: Shard, scaled: tuple[float, float], kernels: int) -> MemoryBound:
        """`scaled`: reads and writes of every element, and `kernels`, where the fused rotation cannot be used."""
        elements = float(shard.tokens * (self.width // shard.tp))
        if self.scaled and shard.fused("rope") and not shard.fused("scaled_rope"):
            read, written = (passes * elements * shard.bytes for passes in scaled)
            return MemoryBound("rotary", read, written, kernels)
        if shard.fused("rope"):
            return MemoryBound("rotary", elements * shard.bytes, elements * shard.bytes)
        # to fp32, complex multiplication, back: three kernels each for queries and keys
        size = elements * (shard.bytes + 8)
        return MemoryBound("rotary", size, size, kernels=6)
