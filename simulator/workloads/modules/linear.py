"""What a linear projection costs: three GEMMs, the bias, and the tensor-parallel collectives around them.

Column-parallel splits the outputs over tp, row-parallel the inputs (Shoeybi et al. 2019); sequence
parallelism turns their all-reduces into all-gather and reduce-scatter (Korthikanti et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard, enclosing
from simulator.workloads.modules.gemms import (
    bias_add,
    bias_gradient,
    cast,
    cast_tokens,
    cast_weights,
    collective,
    full_bytes,
    gather_then,
    gathered_bytes,
    gemm_dtype,
    input_element_bytes,
    projection,
    rescale,
    sort_tokens,
    sum_gradients,
    then_reduce,
    transpose,
    weight_gradient,
)
from simulator.workloads.modules.tensor_grid import Tile
from simulator.workloads.operators import MemoryBound

ALTERNATE = "alternate_matmul"
"""Recompute group of policies that keep every other matrix product of a block (torchtitan's per-operator one)."""


UNKNOWN_TO_POLICY = ("nvfp4",)
"""Types whose matrix products are kernels that such a policy does not know, so that it keeps none (torchao)."""


@dataclass(frozen=True, kw_only=True)
class ColumnLinear(Module):
    """Y = X W + b with W [inputs, outputs] split over tp by outputs; X is whole.

    `parts` are the widths of packed outputs (query, key, value), one GEMM each unless `packed` is among the
    fusions. `separate_bias`: the bias is added by the module that follows (fused with its activation).
    `vocab`: outputs are padded to the vocabulary multiple and the GEMM stays in the activation dtype. `owner`
    is False for a tied weight, which is counted with the embedding unless the head is on another stage;
    `borrowed` is True for one that is counted elsewhere on the same stage.
    """

    name: str
    source: str
    inputs: int
    parts: tuple[int, ...]
    bias: bool = True
    separate_bias: bool = False
    packed: str = ""
    vocab: bool = False
    owner: bool = True
    borrowed: bool = False
    group: str = ""

    @property
    def outputs(self) -> int:
        return sum(self.parts)

    def _widths(self, shard: Shard) -> tuple[int, ...]:
        """Output widths of the GEMMs on one GPU."""
        if self.vocab:
            return (shard.padded_vocab(self.outputs) // shard.tp,)
        widths = tuple(part // shard.tp for part in self.parts)
        return (sum(widths),) if self.packed == "" or shard.fused(self.packed) else widths

    def _useful(self, shard: Shard) -> float:
        return self.outputs / shard.padded_vocab(self.outputs) if self.vocab else 1.0

    def parameters(self, shard: Shard) -> Parameters:
        width = sum(self._widths(shard))
        vectors, weights = width if self.bias else 0, self.inputs // shard.tp_x * width // shard.tp_z
        if not self.vocab:
            return Parameters(matrices=weights, vectors=vectors)
        held = not self.borrowed and (self.owner or shard.separate_head)
        return Parameters(embeddings=weights if held else 0, vectors=vectors)

    def _tile(self, shard: Shard) -> Tile:
        return Tile(
            name=self.name,
            inputs=self.inputs // shard.tp_x,
            widths=self._widths(shard),
            dtype=gemm_dtype(self, shard),
            forward_axis="tp_x",
            backward_axis="tp",
            useful=self._useful(shard),
        )

    def forward(self, shard: Shard) -> list[Operation]:
        if shard.on_grid:
            return self._tile(shard).forward(shard)
        dtype = gemm_dtype(self, shard)
        operations: list[Operation] = []
        if not (
            shard.fused("norm_cast") and self.source.startswith("norm")
        ):  # else the norm writes it narrow
            elements = cast_tokens(dtype, shard) * self.inputs
            if shard.scaling == "row":  # by every projection for itself (pytorch/torchtitan#1207)
                elements *= len(self._widths(shard))
            operations = cast(self.name, "input", elements, dtype, shard, shared=True)
        operations += cast_weights(self.name, self.inputs * sum(self._widths(shard)), dtype, shard)
        gemms = [
            Operation(
                f"{self.name}.forward",
                projection(shard.tokens, width, self.inputs, dtype),
                useful=self._useful(shard),
            )
            for width in self._widths(shard)
        ]
        if shard.sequence_parallel and shard.tp > 1:
            size = gathered_bytes(shard, self.inputs, dtype)
            operations += gather_then(gemms, f"{self.name}.gather", size, shard)
        else:
            operations += gemms
        if self.bias and not self.separate_bias and not shard.fused("bias"):
            operations.append(bias_add(self.name, shard.tokens * sum(self._widths(shard)), shard))
        if self._grouped(shard):  # queries, and values, each by themselves
            operations.append(self._laid_out("split", self.parts[0] + self.parts[2], 2, shard))
        return operations

    def _grouped(self, shard: Shard) -> bool:
        """Whether heads of one product lie group by group, several queries and one key and value each.

        Then queries are no view of it, as they are where there is a key for each (Megatron-Core's
        `get_query_key_value_tensors`), and backward joins the three gradients.
        """
        return self.packed == "qkv" and shard.fused("qkv") and self.parts[0] != self.parts[1]

    def _laid_out(self, label: str, width: int, kernels: int, shard: Shard) -> Operation:
        """A copy of so many of the outputs."""
        size = shard.tokens * (width // shard.tp) * shard.bytes
        return Operation(f"{self.name}.{label}", MemoryBound("elementwise", size, size, kernels))

    def recomputed(self, shard: Shard) -> list[Operation]:
        """Where every other matrix product is kept, the second of each pair of `parts` is run again."""
        if not self._alternates(shard):
            return self.forward(shard)
        return replace(self, parts=self.parts[1::2], packed="", bias=False).forward(shard)

    def _alternates(self, shard: Shard) -> bool:
        """Whether the first of each pair of `parts` is kept, because nothing but the policy asks for the module."""
        asked = shard.recompute_groups.intersection(enclosing(self.group))
        return asked == {ALTERNATE} and len(self.parts) > 1 and shard.gemm_dtype not in UNKNOWN_TO_POLICY

    def kept_of_recomputed(self, shard: Shard) -> list[Saved]:
        if not self._alternates(shard):
            return []
        width = sum(part // shard.tp for part in self.parts[::2])
        return [Saved(f"{self.name}_kept", shard.tokens * width * shard.bytes)]

    def backward(self, shard: Shard) -> list[Operation]:
        if shard.on_grid:
            return self._tile(shard).backward(shard)
        dtype, size = gemm_dtype(self, shard), full_bytes(shard, self.inputs)
        widths, useful, name = self._widths(shard), self._useful(shard), self.name
        parallel, gathered = shard.tp > 1, shard.sequence_parallel and shard.tp > 1
        overlapped = parallel and shard.tp_overlap != "none"
        regathered = gathered and not shard.dtensor
        operations = [self._laid_out("join", self.outputs, 1, shard)] if self._grouped(shard) else []
        operations += cast(name, "output_gradient", shard.tokens * sum(widths), dtype, shard)
        operations += cast_weights(name, self.inputs * sum(widths), dtype, shard)
        if regathered:
            saved = gathered_bytes(shard, self.inputs, dtype)
            operations.append(collective(f"{name}.regather", "all_gather", saved, shard, overlapped))
        for index, width in enumerate(widths):
            gemm = projection(shard.tokens, self.inputs, width, dtype)
            operations.append(Operation(f"{name}.input_gradient", gemm, useful=useful))
            if index:
                operations.append(sum_gradients(name, shard.tokens * self.inputs, shard))
        if parallel:
            op = "reduce_scatter" if gathered else "all_reduce"
            if gathered and len(widths) == 1:  # else the kernel that adds the gradients writes them sorted
                operations += sort_tokens(f"{name}.input_gradient", size, shard)
            beside = overlapped and not shard.dtensor
            operations.append(collective(f"{name}.input_gradient.{op}", op, size, shard, beside))
        waits = (f"{name}.regather",) if regathered and overlapped else ()
        operations += transpose(name, "input", shard.tokens * self.inputs, dtype, shard)
        for width in widths:
            operations += weight_gradient(name, width, self.inputs, dtype, shard, useful, waits)
        if self.bias and not self.separate_bias:
            operations.append(bias_gradient(name, shard.tokens * sum(widths), shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        size = input_element_bytes(gemm_dtype(self, shard), shard)
        tensors = [Saved(self.source, shard.norm_tokens * self.inputs * size)]
        if shard.dtensor and shard.sequence_parallel and shard.tp > 1:
            tensors = [Saved(f"{self.name}.gathered", shard.tokens * self.inputs * size)]
        if self.vocab and shard.loss_chunks > 1:  # which collects the gradient of its input, in fp32
            tensors.append(Saved(f"{self.name}.input_gradient", shard.norm_tokens * self.inputs * 4.0))
        return tensors

    def transient_bytes(self, shard: Shard) -> float:
        width: float = sum(self._widths(shard))
        if self.vocab:
            width /= shard.loss_chunks
        gathered = full_bytes(shard, self.inputs) if shard.sequence_parallel and shard.tp > 1 else 0.0
        return gathered + shard.tokens * (self.inputs + width) * shard.bytes


@dataclass(frozen=True, kw_only=True)
class ColumnGather(Module):
    """The outputs of a column-parallel projection, `width` in all, brought together on every tp rank."""

    name: str
    source: str
    width: int
    group: str = ""

    def forward(self, shard: Shard) -> list[Operation]:
        if shard.tp == 1:
            return []
        return [collective(f"{self.name}.gather", "all_gather", full_bytes(shard, self.width), shard)]

    def backward(self, shard: Shard) -> list[Operation]:
        """Each rank cuts its columns out; under sequence parallelism it first needs the other ranks' tokens."""
        if shard.tp == 1 or not shard.sequence_parallel:
            return []
        return [collective(f"{self.name}.regather", "all_gather", full_bytes(shard, self.width), shard)]


@dataclass(frozen=True, kw_only=True)
class RowLinear(Module):
    """Y = X W + b with W [inputs, outputs] split over tp by inputs; the partial Y are summed over tp."""

    name: str
    source: str
    inputs: int
    outputs: int
    bias: bool = True
    separate_bias: bool = True
    group: str = ""

    def parameters(self, shard: Shard) -> Parameters:
        outputs = self.outputs // shard.tp_x
        return Parameters(
            matrices=self.inputs // shard.tp * outputs // shard.tp_z, vectors=outputs if self.bias else 0
        )

    def _tile(self, shard: Shard) -> Tile:
        return Tile(
            name=self.name,
            inputs=self.inputs // shard.tp,
            widths=(self.outputs // shard.tp_x,),
            dtype=gemm_dtype(self, shard),
            forward_axis="tp",
            backward_axis="tp_x",
        )

    def forward(self, shard: Shard) -> list[Operation]:
        if shard.on_grid:
            return self._tile(shard).forward(shard)
        dtype, inputs = gemm_dtype(self, shard), self.inputs // shard.tp
        operations = cast(self.name, "input", shard.tokens * inputs, dtype, shard)
        operations += cast_weights(self.name, inputs * self.outputs, dtype, shard)
        gemm = Operation(f"{self.name}.forward", projection(shard.tokens, self.outputs, inputs, dtype))
        if shard.tp == 1:
            operations.append(gemm)
        else:
            op = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
            operations += then_reduce(gemm, f"{self.name}.{op}", op, full_bytes(shard, self.outputs), shard)
        if self.bias and not self.separate_bias and not shard.fused("bias"):
            operations.append(bias_add(self.name, shard.norm_tokens * self.outputs, shard))
        return operations

    def recomputed(self, shard: Shard) -> list[Operation]:
        return [] if self._scattered_kept(shard) else self.forward(shard)

    def _scattered_kept(self, shard: Shard) -> bool:
        """Whether the policy that keeps every other product keeps what was reduce-scattered (torchtitan)."""
        asked = shard.recompute_groups.intersection(enclosing(self.group))
        return asked == {ALTERNATE} and shard.sequence_parallel and shard.tp > 1

    def kept_of_recomputed(self, shard: Shard) -> list[Saved]:
        if not self._scattered_kept(shard):
            return []
        return [Saved(f"{self.name}_kept", shard.norm_tokens * self.outputs * shard.bytes)]

    def backward(self, shard: Shard) -> list[Operation]:
        if shard.on_grid:
            return self._tile(shard).backward(shard)
        dtype, inputs = gemm_dtype(self, shard), self.inputs // shard.tp
        elements = cast_tokens(dtype, shard) * self.outputs
        operations = cast(self.name, "output_gradient", elements, dtype, shard, shared=True)
        operations += cast_weights(self.name, inputs * self.outputs, dtype, shard)
        input_gradient = Operation(
            f"{self.name}.input_gradient", projection(shard.tokens, inputs, self.outputs, dtype)
        )
        if shard.sequence_parallel and shard.tp > 1:
            size = gathered_bytes(shard, self.outputs, dtype)
            operations += gather_then([input_gradient], f"{self.name}.gradient_gather", size, shard)
        else:
            operations.append(input_gradient)
        operations += rescale(self.name, "input_gradient", shard.tokens * inputs, dtype, shard)
        operations += transpose(self.name, "output_gradient", shard.tokens * self.outputs, dtype, shard)
        operations += weight_gradient(self.name, self.outputs, inputs, dtype, shard)
        if self.bias and not self.separate_bias:
            operations.append(bias_gradient(self.name, shard.norm_tokens * self.outputs, shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        size = input_element_bytes(gemm_dtype(self, shard), shard)
        return [Saved(self.source, shard.tokens * (self.inputs // shard.tp) * size)]

    def transient_bytes(self, shard: Shard) -> float:
        return shard.tokens * (self.inputs // shard.tp + self.outputs) * shard.bytes


@dataclass(frozen=True, kw_only=True)
class ReplicatedLinear(Module):
    """Y = X W + b held whole by every tp rank (routers, poolers); `first_token`: of each sequence alone.

    `narrow`: computed in the GEMM type of blocks rather than in that of activations.
    """

    name: str
    source: str
    inputs: int
    outputs: int
    bias: bool = True
    first_token: bool = False
    narrow: bool = False
    group: str = ""

    def _dtype(self, shard: Shard) -> str:
        return shard.gemm_dtype if self.narrow else shard.product_dtype

    def _tokens(self, shard: Shard) -> int:
        return shard.micro_batch if self.first_token else shard.norm_tokens

    def _share(self, shard: Shard) -> float:
        """Part of the FLOPs that the model asks for: the rest is the same work on other ranks."""
        if self.first_token:
            return 1.0 / (shard.tp * shard.cp)
        return 1.0 if shard.sequence_parallel else 1.0 / shard.tp

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(matrices=self.inputs * self.outputs, vectors=self.outputs if self.bias else 0)

    def forward(self, shard: Shard) -> list[Operation]:
        tokens, dtype = self._tokens(shard), self._dtype(shard)
        gemm = projection(tokens, self.outputs, self.inputs, dtype)
        operations = cast(self.name, "input", tokens * self.inputs, dtype, shard)
        operations.append(Operation(f"{self.name}.forward", gemm, useful=self._share(shard)))
        if self.bias and not shard.fused("bias"):
            operations.append(bias_add(self.name, self._tokens(shard) * self.outputs, shard))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        tokens, share, dtype = self._tokens(shard), self._share(shard), self._dtype(shard)
        gemm = projection(tokens, self.inputs, self.outputs, dtype)
        operations = cast(self.name, "output_gradient", tokens * self.outputs, dtype, shard)
        operations.append(Operation(f"{self.name}.input_gradient", gemm, useful=share))
        operations += weight_gradient(
            self.name, self.outputs, self.inputs, dtype, shard, share, tokens=tokens
        )
        if self.bias:
            operations.append(bias_gradient(self.name, tokens * self.outputs, shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        size = input_element_bytes(self._dtype(shard), shard)
        return [Saved(self.source, self._tokens(shard) * self.inputs * size)]
