"""One kernel or collective as a layer issues it: label, order, overlap, and the FLOPs that count."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.operators import (
    DTYPE_BYTES,
    Attention,
    Collective,
    Gemm,
    GroupedGemm,
    Kernel,
    MemoryBound,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel or collective of a layer, in the order in which the host issues it.

    Kernels run in order. A collective starts when the kernels before it have ended, in order with the other
    collectives of its axis. A kernel waits for every earlier collective that is not `asynchronous`, and for
    the asynchronous ones named in `waits_for`; what is still outstanding is awaited where the list ends.
    `weight_gradient` marks what a zero-bubble schedule may postpone. `useful` is the part of the FLOPs that
    the model asks for (less than 1 for a padded vocabulary or work replicated over tp), `filled` the part of the work
    that is not spent on padding tokens. `graphed`: replayed from a captured CUDA graph together with its graphed
    neighbours. `awaited`: the host waits for all before it, because it needs numbers that they compute (how many
    tokens each rank receives). `calls`: modules of the software that it is the first operation of.
    """

    label: str
    what: Kernel | Collective
    weight_gradient: bool = False
    asynchronous: bool = False
    waits_for: tuple[str, ...] = ()
    useful: float = 1.0
    filled: float = 1.0
    graphed: bool = False
    awaited: bool = False
    calls: int = 0

    @property
    def is_collective(self) -> bool:
        return isinstance(self.what, Collective)

    @property
    def executed_flops(self) -> float:
        """Matrix FLOPs that the GPU carries out (causal flash halved, its backward x2.5)."""
        what = self.what
        return 0.0 if isinstance(what, Collective | MemoryBound) else what.flops

    @property
    def hbm_bytes(self) -> float:
        """Least bytes that the kernel moves to and from memory: every operand once."""
        what = self.what
        if isinstance(what, Collective):
            return 0.0
        if isinstance(what, MemoryBound):
            return what.bytes_read + what.bytes_written
        size = DTYPE_BYTES[what.dtype]
        if isinstance(what, Attention):
            width = what.head_dim + what.head_dim_v
            queries = what.heads * width * sum(count * queries for count, queries, _ in what.sequences)
            keys = what.kv_heads * width * sum(count * keys for count, _, keys in what.sequences)
            return size * (queries + keys) * (2.0 if what.backward else 1.0)
        weights = what.groups if isinstance(what, GroupedGemm) else what.batch
        rows = what.m if isinstance(what, GroupedGemm) else what.m * what.batch
        depth = what.k / what.reuse if isinstance(what, Gemm) else what.k
        return size * (rows * (depth + what.n) + weights * what.k * what.n)

    @property
    def model_flops(self) -> float:
        """FLOPs by the model's count: full (not causal) attention, backward twice forward, no padding."""
        what = self.what
        if isinstance(what, Collective | MemoryBound):
            return 0.0
        if isinstance(what, Attention):
            return self.useful * self.filled * what.dense_flops * (2.0 if what.backward else 1.0)
        return self.useful * self.filled * what.flops
