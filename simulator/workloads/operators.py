"""What one GPU is asked to do: kernels by exact shape, and collectives by exact size.

Models emit these; `simulator.costs` prices them. All sizes are per GPU, after sharding.
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "mxfp8": 1.0,
    "nvfp4": 0.5,
}


WORD = 16.0
"""Bytes that the fastest kernels load at once, so that every row of a matrix has to be a whole number of them."""


def aligned(dtype: str, *lengths: int) -> bool:
    """Whether rows of so many elements are whole words."""
    return all(length * DTYPE_BYTES[dtype] % WORD == 0 for length in lengths)


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[m, n] = A[m, k] @ B[k, n], `batch` times; FLOPs = 2*batch*m*n*k.

    `reuse`: how often each element of A occurs in it, where A is never written out (the patches of a convolution).
    `aligned`: rows of A, B and C in memory are whole words (`WORD`).
    """

    m: int
    n: int
    k: int
    dtype: str
    batch: int = 1
    accumulate: bool = False  # C += A @ B in fp32 (fused weight-gradient accumulation)
    reuse: float = 1.0
    aligned: bool = True

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class GroupedGemm:
    """`groups` GEMMs that share n and k, their m summing to `m`; the fullest holds `imbalance` x the mean.

    `kernels`: launches it takes, 1 or one per group.
    """

    groups: int
    m: int
    n: int
    k: int
    dtype: str
    imbalance: float = 1.0
    accumulate: bool = False  # C += A @ B in fp32 (fused weight-gradient accumulation)
    kernels: int = 1

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax(Q K^T) V for `batch` sequences and `heads` heads; fused ("flash") kernels only.

    `documents`: (how many, queries, keys) of sequences of unequal length in one kernel, instead of `batch`, `seq_q`
    and `seq_kv`. `windowed`: keys are the last ones before each query.
    """

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_kv: int
    head_dim: int
    head_dim_v: int
    causal: bool
    dtype: str
    implementation: str = "flash2"  # flash1 | flash2 | flash3 | cudnn
    backward: bool = False
    documents: tuple[tuple[int, int, int], ...] = ()
    windowed: bool = False

    @property
    def sequences(self) -> tuple[tuple[int, int, int], ...]:
        """(how many, queries, keys) of each length."""
        return self.documents or ((self.batch, self.seq_q, self.seq_kv),)

    @property
    def dense_flops(self) -> float:
        """FLOPs of two matrix products without a mask: 2*b*h*sq*skv*(d+dv)."""
        scores = sum(count * queries * keys for count, queries, keys in self.sequences)
        return 2.0 * self.heads * scores * (self.head_dim + self.head_dim_v)

    @property
    def flops(self) -> float:
        """Executed FLOPs: the dense ones, halved if causal (square part), x2.5 backward (five GEMMs for two)."""
        return self.dense_flops * (0.5 if self.causal else 1.0) * (2.5 if self.backward else 1.0)


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """An operator limited by HBM: norm, activation, dropout, softmax, embedding, cast, optimizer, copy."""

    op: str
    bytes_read: float
    bytes_written: float
    kernels: int = 1  # launches it takes; each pays its own ramp and host launch
    flops: float = 0.0
    row: float = 0.0  # bytes of what it reads twice over before it goes on (a norm's row); 0: it reads once


Kernel = Gemm | GroupedGemm | Attention | MemoryBound


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective over one axis of the rank grid. `size` in bytes follows NCCL:

    all_reduce: the buffer; all_gather: the gathered output; reduce_scatter: the input; all_to_all: what one rank
    sends in total (its own share included); broadcast, reduce: the buffer; send_recv: the message; shift: the
    message that every rank sends to the next one; broadcast_each: the buffer, of which every rank broadcasts its
    part in turn.
    """

    op: str
    axis: str
    size: float
    dtype: str = "bf16"
