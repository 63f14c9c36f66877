"""What surrounds a GEMM: casts, biases, gradient accumulation, and its collectives, serial or cut into pieces."""

from __future__ import annotations

from dataclasses import replace

from simulator.workloads.layers import Module, Operation, Shard
from simulator.workloads.operators import DTYPE_BYTES, Collective, Gemm, MemoryBound, aligned


def bias_gradient(name: str, elements: float, shard: Shard) -> Operation:
    """Sum of the output gradient over tokens."""
    what = MemoryBound("reduce", elements * shard.bytes, 0.0)
    return Operation(f"{name}.bias_gradient", what, weight_gradient=True)


def projection(tokens: int, outputs: int, inputs: int, dtype: str) -> Gemm:
    """Y [tokens, outputs] = X [tokens, inputs] W, or with the two widths exchanged the gradient of X."""
    return Gemm(tokens, outputs, inputs, dtype, aligned=aligned(dtype, outputs, inputs))


def gemm_dtype(module: Module, shard: Shard) -> str:
    return shard.product_dtype if getattr(module, "vocab", False) else shard.gemm_dtype


def input_element_bytes(dtype: str, shard: Shard) -> float:
    """Bytes per element of a kept GEMM input: the narrow copy where the GEMM runs in fp8 or below."""
    return min(DTYPE_BYTES[dtype], shard.bytes)


def full_bytes(shard: Shard, width: int) -> float:
    return shard.tokens * width * shard.bytes


def gathers_narrow(dtype: str, shard: Shard) -> bool:
    """Whether tp ranks cast their own tokens and gather them narrow; else they gather first and cast all."""
    narrow = shard.sequence_parallel and shard.tp > 1 and DTYPE_BYTES[dtype] < shard.bytes
    return narrow and shard.fused("narrow_gather") and shard.scaling != "row"  # which needs both ways


def gathered_bytes(shard: Shard, width: int, dtype: str) -> float:
    """Of a GEMM operand that tp ranks gather over tokens."""
    size = input_element_bytes(dtype, shard) if gathers_narrow(dtype, shard) else shard.bytes
    return shard.tokens * width * size


def cast_tokens(dtype: str, shard: Shard) -> int:
    """Tokens of such an operand that one rank casts."""
    return shard.norm_tokens if gathers_narrow(dtype, shard) else shard.tokens


def collective(label: str, op: str, size: float, shard: Shard, asynchronous: bool = False) -> Operation:
    return Operation(label, Collective(op, "tp", size, shard.dtype), asynchronous=asynchronous)


def cast(
    name: str, tensor: str, elements: float, dtype: str, shard: Shard, shared: bool = False
) -> list[Operation]:
    """Quantisation before a narrow GEMM: read wide, write row-wise and (for dW) column-wise, by the recipe.

    delayed: one pass, with the scale that earlier steps found. current: a pass for the largest value before it; where
    tp ranks hold different tokens of the tensor (`shared`), they agree on it. Of what is gathered narrow autograd's
    software writes rows alone and turns them later (`transpose`). row: with a scale per row, and of the
    transposed tensor, which is written wide first. block: a scale per block is written too, by one kernel that writes
    both ways or by one for each; 4-bit gradients and inputs are also rotated (Hadamard) for the column-wise copy.
    """
    narrow = DTYPE_BYTES[dtype]
    if narrow >= shard.bytes:
        return []
    orders = 1 if shared and shard.dtensor and gathers_narrow(dtype, shard) else 2
    wide, written = elements * shard.bytes, orders * elements * narrow
    label = f"{name}.cast_{tensor}"
    if shard.scaling == "delayed":
        return [Operation(label, MemoryBound("cast", wide, written))]
    if shard.scaling == "row":
        return [Operation(label, MemoryBound("cast", 2 * wide, wide + written, kernels=2))]
    if shard.scaling == "block":
        scales = 2 * elements / SCALE_BLOCK[dtype]
        kernels = passes = 2 if dtype == "nvfp4" or not shard.fused("cast_transpose") else 1
        return [Operation(label, MemoryBound("cast_block", passes * wide, written + scales, kernels))]
    operations = [Operation(f"{name}.largest_{tensor}", MemoryBound("reduce", wide, 0.0))]
    if shared and shard.sequence_parallel and shard.tp > 1:
        largest = Collective("all_reduce", "tp", 4.0, "fp32")
        operations.append(Operation(f"{name}.largest_{tensor}.all_reduce", largest))
    return [*operations, Operation(label, MemoryBound("cast", wide, written))]


def transpose(name: str, tensor: str, elements: float, dtype: str, shard: Shard) -> list[Operation]:
    """What was gathered narrow, row by row, is turned for the weight gradient, whose kernels take no other order."""
    if not (shard.dtensor and gathers_narrow(dtype, shard)):
        return []
    size = elements * DTYPE_BYTES[dtype]
    what = MemoryBound("copy", size, size)
    return [Operation(f"{name}.transpose_{tensor}", what, weight_gradient=True)]


SCALE_BLOCK = {"fp8": 128, "mxfp8": 32, "nvfp4": 16}
"""Elements that share one scale of a byte (fp8: DeepSeek-V3's 1 x 128, whose scales are fp32 but as few)."""


def cast_weights(name: str, elements: float, dtype: str, shard: Shard) -> list[Operation]:
    """Weights that were gathered wide are made narrow before every use; others once a step, with the update."""
    return cast(name, "weights", elements, dtype, shard) if shard.casts_weights else []


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
    whole = aligned(dtype, outputs, inputs)
    gemm = Gemm(outputs, inputs, tokens or shard.tokens, dtype, accumulate=fused, aligned=whole)
    operations = [
        Operation(f"{name}.weight_gradient", gemm, weight_gradient=True, waits_for=waits, useful=useful),
        *rescale(name, "weight_gradient", float(outputs * inputs), dtype, shard),
    ]
    if shard.accumulate_gradients and not fused:
        kept = DTYPE_BYTES[shard.gradient_dtype]
        elements = float(outputs * inputs)
        add = MemoryBound("gradient_add", elements * (shard.bytes + kept), elements * kept)
        operations.append(Operation(f"{name}.gradient_add", add, weight_gradient=True))
    return operations


def sort_tokens(label: str, size: float, shard: Shard) -> list[Operation]:
    """Gathered tokens are copied from rank by rank to sequence by sequence, or the other way before a reduction.

    A collective cuts the outermost dimension; DTensor shards the second one of [sequences, tokens, width]
    (pytorch/torchtitan#437). Sizes in bytes.
    """
    if not (shard.dtensor and shard.sequence_parallel):
        return []
    return [Operation(f"{label}.sort_tokens", MemoryBound("copy", size, size))]


def rescale(name: str, gradient: str, elements: float, dtype: str, shard: Shard) -> list[Operation]:
    """Scales by row are multiplied in by a kernel of their own where backward multiplies without fast accumulation.

    cuBLAS knows one scale per tensor, and kernels with a scale per row are slower without it (torchao's
    `addmm_float8_unwrapped`, pytorch/ao#2184).
    """
    if shard.scaling != "row" or DTYPE_BYTES[dtype] >= shard.bytes:
        return []
    what = MemoryBound("elementwise", elements * shard.bytes, elements * shard.bytes)
    return [Operation(f"{name}.rescale_{gradient}", what, weight_gradient=gradient == "weight_gradient")]


def gather_then(gemms: list[Operation], label: str, size: float, shard: Shard) -> list[Operation]:
    """All-gather, then the GEMMs; pipelined: tp pieces, each computed while the next one travels."""
    if shard.tp_overlap != "pipelined" or _cast_between(gemms, shard):
        return [collective(label, "all_gather", size, shard), *sort_tokens(label, size, shard), *gemms]
    operations = _through_symmetric_memory(label, size, shard)
    for piece in range(shard.tp):
        waits: tuple[str, ...] = ()
        if piece:
            waits = (f"{label}.{piece - 1}",)
        if piece + 1 < shard.tp:
            send = Collective("shift", "tp", size / shard.tp, shard.dtype)
            operations.append(Operation(f"{label}.{piece}", send, asynchronous=True))
        operations += [_piece(gemm, piece, shard.tp, waits) for gemm in gemms]
    return operations


def _cast_between(gemms: list[Operation], shard: Shard) -> bool:
    """Whether the compiler finds no product behind the gather: what is scaled by row is gathered wide, then cast."""
    what = gemms[0].what
    return shard.dtensor and shard.scaling == "row" and isinstance(what, Gemm) and what.dtype != shard.dtype


def _through_symmetric_memory(label: str, size: float, shard: Shard) -> list[Operation]:
    """A rank copies its own piece to where the others read it, and to its place among theirs.

    `_pipelined_multi_all_gather_and_consume` of torch.distributed._symmetric_memory.
    """
    if not shard.dtensor:
        return []
    own = 2 * size / shard.tp
    return [Operation(f"{label}.copy", MemoryBound("copy", own, own, kernels=2))]


def then_reduce(gemm: Operation, label: str, op: str, size: float, shard: Shard) -> list[Operation]:
    """The GEMM, then the reduction of Y; pipelined: a piece's sums travel under the next piece.

    What comes from every rank is then added by a kernel that reads it all (Transformer Engine: reduce_bf16; PyTorch's
    asynchronous tensor parallelism: a sum over the pieces in symmetric memory).
    """
    if shard.tp_overlap != "pipelined" or op != "reduce_scatter":
        copies = sort_tokens(label, size, shard) if op == "reduce_scatter" else []
        return [gemm, *copies, collective(label, op, size, shard)]
    operations: list[Operation] = []
    for piece in range(shard.tp):
        operations.append(_piece(gemm, piece, shard.tp, ()))
        if piece + 1 < shard.tp:
            send = Collective("shift", "tp", size / shard.tp, shard.dtype)
            operations.append(Operation(f"{label}.{piece}", send, asynchronous=True))
    last = (f"{label}.{shard.tp - 2}",)
    add = MemoryBound("reduce", size, size / shard.tp)
    return [*operations, Operation(f"{label}.sum", add, waits_for=last)]


def _piece(gemm: Operation, piece: int, pieces: int, waits: tuple[str, ...]) -> Operation:
    """One of `pieces` slices of a GEMM along its rows (tokens); the remainder goes to the first."""
    what = gemm.what
    if not isinstance(what, Gemm):
        raise TypeError(f"only a Gemm can be cut into pieces, not {type(what).__name__}")
    rows = what.m // pieces + (what.m % pieces if piece == 0 else 0)
    return Operation(gemm.label, replace(what, m=rows), useful=gemm.useful, waits_for=waits)
