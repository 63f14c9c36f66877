"""What a linear projection costs: three GEMMs, the bias, and the tensor-parallel collectives around them.

Column-parallel splits the outputs over tp, row-parallel the inputs (Shoeybi et al. 2019); sequence
parallelism turns their all-reduces into all-gather and reduce-scatter (Korthikanti et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.operators import DTYPE_BYTES, Collective, Gemm, MemoryBound


@dataclass(frozen=True, kw_only=True)
class ColumnLinear(Module):
    """Y = X W + b with W [inputs, outputs] split over tp by outputs; X is whole.

    `parts` are the widths of packed outputs (query, key, value), one GEMM each unless `packed` is among the
    fusions. `separate_bias`: the bias is added by the module that follows (fused with its activation).
    `vocab`: outputs are padded to the vocabulary multiple and the GEMM stays in the activation dtype. `owner`
    is False for a tied weight, which is counted with the embedding unless the head is on another stage.
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
        vectors = width if self.bias else 0
        if not self.vocab:
            return Parameters(matrices=self.inputs * width, vectors=vectors)
        return Parameters(
            embeddings=self.inputs * width if self.owner or shard.separate_head else 0, vectors=vectors
        )

    def forward(self, shard: Shard) -> list[Operation]:
        dtype = _gemm_dtype(self, shard)
        operations = _cast(self.name, "input", shard.tokens * self.inputs, dtype, shard)
        gemms = [
            Operation(
                f"{self.name}.forward",
                Gemm(shard.tokens, width, self.inputs, dtype),
                useful=self._useful(shard),
            )
            for width in self._widths(shard)
        ]
        if shard.sequence_parallel and shard.tp > 1:
            operations += _gather_then(gemms, f"{self.name}.gather", _full(shard, self.inputs), shard)
        else:
            operations += gemms
        if self.bias and not self.separate_bias and not shard.fused("bias"):
            operations.append(_bias_add(self.name, shard.tokens * sum(self._widths(shard)), shard))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        dtype, size = _gemm_dtype(self, shard), _full(shard, self.inputs)
        widths, useful, name = self._widths(shard), self._useful(shard), self.name
        parallel, gathered = shard.tp > 1, shard.sequence_parallel and shard.tp > 1
        overlapped = parallel and shard.tp_overlap != "none"
        operations = _cast(name, "output_gradient", shard.tokens * sum(widths), dtype, shard)
        if gathered:
            operations.append(_collective(f"{name}.regather", "all_gather", size, shard, overlapped))
        for index, width in enumerate(widths):
            gemm = Gemm(shard.tokens, self.inputs, width, dtype)
            operations.append(Operation(f"{name}.input_gradient", gemm, useful=useful))
            if index:
                operations.append(_sum_gradients(name, shard.tokens * self.inputs, shard))
        if parallel:
            op = "reduce_scatter" if gathered else "all_reduce"
            operations.append(_collective(f"{name}.input_gradient.{op}", op, size, shard, overlapped))
        waits = (f"{name}.regather",) if gathered and overlapped else ()
        for width in widths:
            operations += _weight_gradient(name, width, self.inputs, dtype, shard, useful, waits)
        if self.bias and not self.separate_bias:
            operations.append(bias_gradient(name, shard.tokens * sum(widths), shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        size = _input_bytes(_gemm_dtype(self, shard), shard)
        return [Saved(self.source, shard.norm_tokens * self.inputs * size)]

    def transient_bytes(self, shard: Shard) -> float:
        width = sum(self._widths(shard))
        gathered = _full(shard, self.inputs) if shard.sequence_parallel and shard.tp > 1 else 0.0
        return gathered + shard.tokens * (self.inputs + width) * shard.bytes


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
        return Parameters(
            matrices=self.inputs // shard.tp * self.outputs, vectors=self.outputs if self.bias else 0
        )

    def forward(self, shard: Shard) -> list[Operation]:
        dtype, inputs = _gemm_dtype(self, shard), self.inputs // shard.tp
        operations = _cast(self.name, "input", shard.tokens * inputs, dtype, shard)
        gemm = Operation(f"{self.name}.forward", Gemm(shard.tokens, self.outputs, inputs, dtype))
        if shard.tp == 1:
            operations.append(gemm)
        else:
            op = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
            operations += _then_reduce(gemm, f"{self.name}.{op}", op, _full(shard, self.outputs), shard)
        if self.bias and not self.separate_bias and not shard.fused("bias"):
            operations.append(_bias_add(self.name, shard.norm_tokens * self.outputs, shard))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        dtype, inputs = _gemm_dtype(self, shard), self.inputs // shard.tp
        operations = _cast(self.name, "output_gradient", shard.tokens * self.outputs, dtype, shard)
        input_gradient = Operation(
            f"{self.name}.input_gradient", Gemm(shard.tokens, inputs, self.outputs, dtype)
        )
        if shard.sequence_parallel and shard.tp > 1:
            size = _full(shard, self.outputs)
            operations += _gather_then([input_gradient], f"{self.name}.gradient_gather", size, shard)
        else:
            operations.append(input_gradient)
        operations += _weight_gradient(self.name, self.outputs, inputs, dtype, shard)
        if self.bias and not self.separate_bias:
            operations.append(bias_gradient(self.name, shard.norm_tokens * self.outputs, shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        size = _input_bytes(_gemm_dtype(self, shard), shard)
        return [Saved(self.source, shard.tokens * (self.inputs // shard.tp) * size)]

    def transient_bytes(self, shard: Shard) -> float:
        return shard.tokens * (self.inputs // shard.tp + self.outputs) * shard.bytes


@dataclass(frozen=True, kw_only=True)
class ReplicatedLinear(Module):
    """Y = X W + b held whole by every tp rank (routers, poolers); `first_token`: of each sequence alone."""

    name: str
    source: str
    inputs: int
    outputs: int
    bias: bool = True
    first_token: bool = False
    group: str = ""

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
        gemm = Gemm(self._tokens(shard), self.outputs, self.inputs, shard.dtype)
        operations = [Operation(f"{self.name}.forward", gemm, useful=self._share(shard))]
        if self.bias and not shard.fused("bias"):
            operations.append(_bias_add(self.name, self._tokens(shard) * self.outputs, shard))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        gemm = Gemm(self._tokens(shard), self.inputs, self.outputs, shard.dtype)
        share, dtype = self._share(shard), shard.dtype
        operations = [Operation(f"{self.name}.input_gradient", gemm, useful=share)]
        operations += _weight_gradient(
            self.name, self.outputs, self.inputs, dtype, shard, share, tokens=self._tokens(shard)
        )
        if self.bias:
            operations.append(bias_gradient(self.name, self._tokens(shard) * self.outputs, shard))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(self.source, self._tokens(shard) * self.inputs * shard.bytes)]


def bias_gradient(name: str, elements: float, shard: Shard) -> Operation:
    """Sum of the output gradient over tokens."""
    what = MemoryBound("reduce", elements * shard.bytes, 0.0)
    return Operation(f"{name}.bias_gradient", what, weight_gradient=True)


def _gemm_dtype(module: Module, shard: Shard) -> str:
    return shard.dtype if getattr(module, "vocab", False) else shard.gemm_dtype


def _input_bytes(dtype: str, shard: Shard) -> float:
    """Bytes per element of a kept GEMM input: the narrow copy where the GEMM runs in fp8 or below."""
    return min(DTYPE_BYTES[dtype], shard.bytes)


def _full(shard: Shard, width: int) -> float:
    return shard.tokens * width * shard.bytes


def _collective(label: str, op: str, size: float, shard: Shard, asynchronous: bool = False) -> Operation:
    return Operation(label, Collective(op, "tp", size, shard.dtype), asynchronous=asynchronous)


def _cast(name: str, tensor: str, elements: float, dtype: str, shard: Shard) -> list[Operation]:
    """Quantisation before a narrow GEMM: read wide, write row-wise and (for dW) column-wise."""
    narrow = DTYPE_BYTES[dtype]
    if narrow >= shard.bytes:
        return []
    return [
        Operation(f"{name}.cast_{tensor}", MemoryBound("cast", elements * shard.bytes, 2 * elements * narrow))
    ]


def _bias_add(name: str, elements: float, shard: Shard) -> Operation:
    what = MemoryBound("bias", elements * shard.bytes, elements * shard.bytes)
    return Operation(f"{name}.bias", what)


def _sum_gradients(name: str, elements: float, shard: Shard) -> Operation:
    """Gradients of the same input that reach it through two GEMMs are added."""
    what = MemoryBound("add", 2 * elements * shard.bytes, elements * shard.bytes)
    return Operation(f"{name}.sum_input_gradients", what)


def _weight_gradient(
    name: str,
    outputs: int,
    inputs: int,
    dtype: str,
    shard: Shard,
    useful: float = 1.0,
    waits: tuple[str, ...] = (),
    tokens: int | None = None,
) -> list[Operation]:
    """dW [outputs, inputs] from all tokens, added to the gradient buffer (in the GEMM if fused)."""
    fused = shard.accumulate_gradients and shard.fused("gradient_accumulation")
    gemm = Gemm(outputs, inputs, tokens or shard.tokens, dtype, accumulate=fused)
    operations = [
        Operation(f"{name}.weight_gradient", gemm, weight_gradient=True, waits_for=waits, useful=useful)
    ]
    if shard.accumulate_gradients and not fused:
        kept = DTYPE_BYTES[shard.gradient_dtype]
        elements = float(outputs * inputs)
        add = MemoryBound("gradient_add", elements * (shard.bytes + kept), elements * kept)
        operations.append(Operation(f"{name}.gradient_add", add, weight_gradient=True))
    return operations


def _gather_then(gemms: list[Operation], label: str, size: float, shard: Shard) -> list[Operation]:
    """All-gather, then the GEMMs; pipelined: tp pieces, each computed while the next one travels."""
    if shard.tp_overlap != "pipelined":
        return [_collective(label, "all_gather", size, shard), *gemms]
    operations: list[Operation] = []
    for piece in range(shard.tp):
        waits: tuple[str, ...] = ()
        if piece:
            waits = (f"{label}.{piece - 1}",)
        if piece + 1 < shard.tp:
            send = Collective("send_recv", "tp", size / shard.tp, shard.dtype)
            operations.append(Operation(f"{label}.{piece}", send, asynchronous=True))
        operations += [_piece(gemm, piece, shard.tp, waits) for gemm in gemms]
    return operations


def _then_reduce(gemm: Operation, label: str, op: str, size: float, shard: Shard) -> list[Operation]:
    """The GEMM, then the reduction of Y; pipelined: a piece's sums travel under the next piece."""
    if shard.tp_overlap != "pipelined" or op != "reduce_scatter":
        return [gemm, _collective(label, op, size, shard)]
    operations: list[Operation] = []
    for piece in range(shard.tp):
        operations.append(_piece(gemm, piece, shard.tp, ()))
        if piece + 1 < shard.tp:
            send = Collective("send_recv", "tp", size / shard.tp, shard.dtype)
            operations.append(Operation(f"{label}.{piece}", send, asynchronous=True))
    return operations


def _piece(gemm: Operation, piece: int, pieces: int, waits: tuple[str, ...]) -> Operation:
    """One of `pieces` slices of a GEMM along its rows (tokens); the remainder goes to the first."""
    what = gemm.what
    if not isinstance(what, Gemm):
        raise TypeError(f"only a Gemm can be cut into pieces, not {type(what).__name__}")
    rows = what.m // pieces + (what.m % pieces if piece == 0 else 0)
    cut = Gemm(rows, what.n, what.k, what.dtype, what.batch, what.accumulate)
    return Operation(gemm.label, cut, useful=gemm.useful, waits_for=waits)
