"""Operators of a user's own graph: what may stand in its YAML, and the module that each becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.description.quantities import Bytes
from simulator.description.registry import Registry
from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.modules.gemms import projection, weight_gradient
from simulator.workloads.modules.lookup import Lookup
from simulator.workloads.operators import Attention, Collective, MemoryBound

OPERATORS = Registry("operator", "kind")


class GraphOperator(Description):
    """Base of all operators of a graph."""

    kind: str = Field(description="Which operator.")
    name: str = Field(default="", description="Name, for pictures; the kind and a number if left out.")

    def module(self, name: str, source: str) -> Module:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Linear(Module):
    """Y = X W + b on `rows` rows of X per token, as one GEMM; nothing is split over tp."""

    name: str
    source: str
    rows: int
    inputs: int
    outputs: int
    bias: bool
    owner: bool = True
    group: str = ""

    def parameters(self, shard: Shard) -> Parameters:
        if not self.owner:
            return Parameters()
        return Parameters(matrices=self.inputs * self.outputs, vectors=self.outputs if self.bias else 0)

    def forward(self, shard: Shard) -> list[Operation]:
        rows = self.rows * shard.tokens
        return [
            Operation(f"{self.name}.forward", projection(rows, self.outputs, self.inputs, shard.gemm_dtype))
        ]

    def backward(self, shard: Shard) -> list[Operation]:
        rows = self.rows * shard.tokens
        gradient = projection(rows, self.inputs, self.outputs, shard.gemm_dtype)
        return [
            Operation(f"{self.name}.input_gradient", gradient),
            *weight_gradient(self.name, self.outputs, self.inputs, shard.gemm_dtype, shard, tokens=rows),
        ]

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(self.source, self.rows * shard.tokens * self.inputs * shard.bytes)]


@OPERATORS.register("linear")
class LinearOperator(GraphOperator):
    """Y = X W: one GEMM forward, two backward; W is a parameter and X is kept."""

    kind: Literal["linear"] = Field(default="linear", description="Always `linear`.")
    rows: int = Field(default=1, gt=0, description="Rows of X per token.")
    inputs: int = Field(gt=0, description="Columns of X, rows of W.")
    outputs: int = Field(gt=0, description="Columns of W.")
    bias: bool = Field(default=False, description="Whether a bias is added (by the GEMM itself).")
    owner: bool = Field(
        default=True,
        description="Whether W is a parameter of its own; else it was looked up or computed before.",
    )

    def module(self, name: str, source: str) -> Module:
        return Linear(
            name=name,
            source=source,
            rows=self.rows,
            inputs=self.inputs,
            outputs=self.outputs,
            bias=self.bias,
            owner=self.owner,
        )


@OPERATORS.register("lookup")
class LookupOperator(GraphOperator):
    """Rows of a table, read one by one: an embedding. Its gradient may be sparse (`plan.synchronisation.sparse`)."""

    kind: Literal["lookup"] = Field(default="lookup", description="Always `lookup`.")
    rows: int = Field(gt=0, description="Rows of the table.")
    width: int = Field(gt=0, description="Parameters of a row.")
    lookups: int = Field(default=1, gt=0, description="Rows per token (sample).")
    pooled: bool = Field(default=False, description="Whether the rows of a token are added up.")
    skew: float = Field(
        default=1.0, ge=0, description="Which rows: the i-th with probability ~ 1/i^skew; 0: all alike."
    )

    def module(self, name: str, source: str) -> Module:
        return Lookup(
            name=name,
            source=source,
            rows=self.rows,
            width=self.width,
            lookups=self.lookups,
            pooled=self.pooled,
            skew=self.skew,
        )


@dataclass(frozen=True, kw_only=True)
class _Attention(Module):
    name: str
    source: str
    heads: int
    kv_heads: int
    head_dim: int
    keys: int | None
    causal: bool
    group: str = "core_attention"
    keeps_output: bool = True

    def _kernel(self, shard: Shard, backward: bool) -> Attention:
        queries = shard.sequence_length // shard.cp
        keys = self.keys or shard.sequence_length
        kernel = "flash2" if shard.attention == "unfused" else shard.attention
        width = self.head_dim
        sizes = (shard.micro_batch, self.heads, self.kv_heads, queries, keys, width, width)
        return Attention(*sizes, self.causal, shard.dtype, kernel, backward)

    def forward(self, shard: Shard) -> list[Operation]:
        return [Operation(f"{self.name}.forward", self._kernel(shard, False))]

    def backward(self, shard: Shard) -> list[Operation]:
        return [Operation(f"{self.name}.backward", self._kernel(shard, True))]

    def saved(self, shard: Shard) -> list[Saved]:
        rows = shard.tokens * self.head_dim * shard.bytes
        return [
            Saved(self.source, rows * (self.heads + 2 * self.kv_heads)),
            Saved(self.name, rows * self.heads),
        ]


@OPERATORS.register("attention")
class AttentionOperator(GraphOperator):
    """Fused softmax(Q K^T) V of the sequences of a micro-batch."""

    kind: Literal["attention"] = Field(default="attention", description="Always `attention`.")
    heads: int = Field(gt=0, description="Query heads on one GPU.")
    kv_heads: int | None = Field(
        default=None, gt=0, description="Key-value heads; as many as heads if left out."
    )
    head_dim: int = Field(gt=0, description="Width of a head.")
    keys: int | None = Field(
        default=None, gt=0, description="Keys per sequence; the sequence length if left out."
    )
    causal: bool = Field(default=True, description="Whether a token sees only those before it.")

    def module(self, name: str, source: str) -> Module:
        return _Attention(
            name=name,
            source=source,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            head_dim=self.head_dim,
            keys=self.keys,
            causal=self.causal,
        )


@dataclass(frozen=True, kw_only=True)
class _MemoryBound(Module):
    name: str
    source: str
    op: str
    forward_bytes: float
    input_gradient_bytes: float
    weight_gradient_bytes: float
    saved_bytes: float
    vectors: int
    group: str = ""

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(vectors=self.vectors)

    def forward(self, shard: Shard) -> list[Operation]:
        return self._moves("forward", self.forward_bytes, shard)

    def backward(self, shard: Shard) -> list[Operation]:
        first = self._moves("input_gradient", self.input_gradient_bytes, shard)
        return first + self._moves("weight_gradient", self.weight_gradient_bytes, shard, True)

    def _moves(self, label: str, size: float, shard: Shard, late: bool = False) -> list[Operation]:
        what = MemoryBound(self.op, size * shard.tokens, 0.0)
        return [Operation(f"{self.name}.{label}", what, weight_gradient=late)] if size else []

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(f"{self.name}.kept", self.saved_bytes * shard.tokens)] if self.saved_bytes else []


@OPERATORS.register("memory_bound")
class MemoryBoundOperator(GraphOperator):
    """An operator limited by memory, by the bytes that it moves per token."""

    kind: Literal["memory_bound"] = Field(default="memory_bound", description="Always `memory_bound`.")
    op: str = Field(
        default="elementwise", description="Which achieved bandwidth applies (norm, softmax, copy, ...)."
    )
    forward: Bytes = Field(default=0.0, description="Moved forward.")
    input_gradient: Bytes = Field(default=0.0, description="Moved backward.")
    weight_gradient: Bytes = Field(
        default=0.0, description="Moved backward by what a zero-bubble schedule may put off."
    )
    saved: Bytes = Field(default=0.0, description="Kept from forward to backward.")
    parameters: int = Field(default=0, ge=0, description="Parameters of the operator.")

    def module(self, name: str, source: str) -> Module:
        return _MemoryBound(
            name=name,
            source=source,
            op=self.op,
            forward_bytes=self.forward,
            input_gradient_bytes=self.input_gradient,
            weight_gradient_bytes=self.weight_gradient,
            saved_bytes=self.saved,
            vectors=self.parameters,
        )


@dataclass(frozen=True, kw_only=True)
class _Collective(Module):
    name: str
    source: str
    axis: str
    forward_op: str | None
    backward_op: str | None
    size: float
    asynchronous: bool
    group: str = ""

    def forward(self, shard: Shard) -> list[Operation]:
        return self._sends(self.forward_op, "forward", shard)

    def backward(self, shard: Shard) -> list[Operation]:
        return self._sends(self.backward_op, "backward", shard)

    def _sends(self, op: str | None, label: str, shard: Shard) -> list[Operation]:
        if op is None:
            return []
        what = Collective(op, self.axis, self.size * shard.tokens, shard.dtype)
        return [Operation(f"{self.name}.{label}", what, asynchronous=self.asynchronous)]


Op = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


@OPERATORS.register("collective")
class CollectiveOperator(GraphOperator):
    """A collective between operators, over one axis of the rank grid; `size` as the library counts it."""

    kind: Literal["collective"] = Field(default="collective", description="Always `collective`.")
    axis: Literal["tp", "cp", "ep"] = Field(default="tp", description="Whom it is exchanged with.")
    forward: Op | None = Field(default=None, description="Collective of the forward pass; null: none.")
    backward: Op | None = Field(default=None, description="Collective of the backward pass; null: none.")
    size: Bytes = Field(description="Bytes per token: the buffer, the gathered output, the scattered input.")
    asynchronous: bool = Field(default=False, description="Whether the kernels after it go on beside it.")

    def module(self, name: str, source: str) -> Module:
        return _Collective(
            name=name,
            source=source,
            axis=self.axis,
            forward_op=self.forward,
            backward_op=self.backward,
            size=self.size,
            asynchronous=self.asynchronous,
        )
