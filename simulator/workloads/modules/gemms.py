"""What surrounds a GEMM: casts, biases, gradient accumulation, and its collectives, serial or cut into pieces."""

from __future__ import annotations

from simulator.workloads.layers import Module, Operation, Shard
from simulator.workloads.operators import DTYPE_BYTES, Collective, Gemm, MemoryBound


def bias_gradient(name: str, elements: float, shard: Shard) -> Operation:
    """Sum of the output gradient over tokens."""
    what = MemoryBound("reduce", elements * shard.bytes, 0.0)
    return Operation(f"{name}.bias_gradient", what, weight_gradient=True)


def gemm_dtype(module: Module, shard: Shard) -> str:
    return shard.dtype if getattr(module, "vocab", False) else shard.gemm_dtype


def input_element_bytes(dtype: str, shard: Shard) -> float:
    """Bytes per element of a kept GEMM input: the narrow copy where the GEMM runs in fp8 or below."""
    return min(DTYPE_BYTES[dtype], shard.bytes)


def full_bytes(shard: Shard, width: int) -> float:
    return shard.tokens * width * shard.bytes


def collective(label: str, op: str, size: float, shard: Shard, asynchronous: bool = False) -> Operation:
    return Operation(label, Collective(op, "tp", size, shard.dtype), asynchronous=asynchronous)


def cast(name: str, tensor: str, elements: float, dtype: str, shard: Shard) -> list[Operation]:
    """Quantisation before a narrow GEMM: read wide, write row-wise and (for dW) column-wise."""
    narrow = DTYPE_BYTES[dtype]
    if narrow >= shard.bytes:
        return []
    return [
        Operation(f"{name}.cast_{tensor}", MemoryBound("cast", elements * shard.bytes, 2 * elements * narrow))
    ]


def bias_add(name: str, elements: float, shard: Shard) -> Operation:
    what = MemoryBound("bias", elements * shard.bytes, elements * shard.bytes)
    return Operation(f"{name}.bias", what)


def sum_gradients(name: str, elements: float, shard: Shard) -> Operation:
    """Gradients of the same input that reach it through two GEMMs are added."""
    what = MemoryBound("add", 2 * elements * shard.bytes, elements * shard.bytes)
    return Operation(f"{name}.sum_input_gradients", what)


def weight_gradient(
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


def gather_then(gemms: list[Operation], label: str, size: float, shard: Shard) -> list[Operation]:
    """All-gather, then the GEMMs; pipelined: tp pieces, each computed while the next one travels."""
    if shard.tp_overlap != "pipelined":
        return [collective(label, "all_gather", size, shard), *gemms]
    operations: list[Operation] = []
    for piece in range(shard.tp):
        waits: tuple[str, ...] = ()
        if piece:
            waits = (f"{label}.{piece - 1}",)
        if piece + 1 < shard.tp:
            send = Collective("shift", "tp", size / shard.tp, shard.dtype)
            operations.append(Operation(f"{label}.{piece}", send, asynchronous=True))
        operations += [_piece(gemm, piece, shard.tp, waits) for gemm in gemms]
    return operations


def then_reduce(gemm: Operation, label: str, op: str, size: float, shard: Shard) -> list[Operation]:
    """The GEMM, then the reduction of Y; pipelined: a piece's sums travel under the next piece."""
    if shard.tp_overlap != "pipelined" or op != "reduce_scatter":
        return [gemm, collective(label, op, size, shard)]
    operations: list[Operation] = []
    for piece in range(shard.tp):
        operations.append(_piece(gemm, piece, shard.tp, ()))
        if piece + 1 < shard.tp:
            send = Collective("shift", "tp", size / shard.tp, shard.dtype)
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
