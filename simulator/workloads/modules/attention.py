"""What the attention core costs, between the query-key-value and the output projection.

Unfused (scores, softmax, dropout, context as separate kernels) or one flash kernel; over a context-parallel
group keys and values travel in a ring, are gathered, or heads are exchanged for tokens (Ulysses).
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.operators import Attention, Collective, Gemm, MemoryBound

MASK_BYTES = 1.0
LOG_SUM_EXP_BYTES = 4.0


@dataclass(frozen=True, kw_only=True)
class CoreAttention(Module):
    """softmax(Q K^T) V over heads split by tp; selective recomputation reruns it, keeping the output.

    `window`: keys that a query meets, all if None. `sinks`: a learned logit per head joins the softmax.
    """

    name: str
    source: str
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    causal: bool = True
    dropout: bool = True
    window: int | None = None
    sinks: bool = False
    group: str = "core_attention"
    keeps_output: bool = True

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(vectors=self._heads(shard) if self.sinks else 0)

    def forward(self, shard: Shard) -> list[Operation]:
        if shard.attention == "unfused":
            return self._unfused_forward(shard)
        return self._exchanged(shard, backward=False)

    def backward(self, shard: Shard) -> list[Operation]:
        if shard.attention == "unfused":
            return self._unfused_backward(shard)
        return self._exchanged(shard, backward=True)

    def saved(self, shard: Shard) -> list[Saved]:
        """Queries, keys, values; probabilities, dropout mask and result, or output and log-sum-exp."""
        tensors = [Saved(self.source, self._qkv_elements(shard) * shard.bytes)]
        if shard.attention == "unfused":
            scores = self._score_elements(shard)
            tensors.append(Saved(f"{self.name}.probabilities", scores * shard.bytes))
            if self.dropout:
                tensors.append(Saved(f"{self.name}.mask", scores * MASK_BYTES))
                tensors.append(Saved(f"{self.name}.dropped", scores * shard.bytes))
            return tensors
        rows = shard.tokens * self._heads(shard)
        tensors.append(Saved(self.name, rows * self.head_dim_v * shard.bytes))
        return [*tensors, Saved(f"{self.name}.log_sum_exp", rows * LOG_SUM_EXP_BYTES)]

    def transient_bytes(self, shard: Shard) -> float:
        gradients = 2 * self._qkv_elements(shard) * shard.bytes
        if shard.attention == "unfused":
            return gradients + 2 * self._score_elements(shard) * shard.bytes
        return gradients

    def _heads(self, shard: Shard) -> int:
        return self.heads // shard.tp

    def _kv_heads(self, shard: Shard) -> int:
        return max(1, self.kv_heads // shard.tp)

    def _score_elements(self, shard: Shard) -> float:
        queries = shard.sequence_length // shard.cp
        return float(shard.micro_batch * self._heads(shard) * queries * shard.sequence_length)

    def _qkv_elements(self, shard: Shard) -> float:
        kv = self._kv_heads(shard) * (self.head_dim + self.head_dim_v)
        return float(shard.tokens * (self._heads(shard) * self.head_dim + kv))

    def _scores(self, shard: Shard, m: int, n: int, k: int, label: str) -> Operation:
        gemm = Gemm(m, n, k, shard.dtype, batch=shard.micro_batch * self._heads(shard))
        return Operation(f"{self.name}.{label}", gemm)

    def _unfused_forward(self, shard: Shard) -> list[Operation]:
        queries, keys = shard.sequence_length // shard.cp, shard.sequence_length
        size = self._score_elements(shard) * shard.bytes
        operations = self._gather_keys(shard, backward=False)
        operations.append(self._scores(shard, queries, keys, self.head_dim, "scores"))
        operations += self._softmax_forward(shard)
        if self.dropout:
            dropout = MemoryBound("dropout", size, size + self._score_elements(shard) * MASK_BYTES)
            operations.append(Operation(f"{self.name}.dropout", dropout))
        operations.append(self._scores(shard, queries, self.head_dim_v, keys, "context"))
        output = shard.tokens * self._heads(shard) * self.head_dim_v * shard.bytes
        # heads and tokens change places: the context is copied into contiguous memory
        operations.append(Operation(f"{self.name}.copy", MemoryBound("copy", output, output)))
        return operations

    def _softmax_forward(self, shard: Shard) -> list[Operation]:
        elements, size = self._score_elements(shard), shard.bytes
        if shard.fused("masked_softmax"):
            what = MemoryBound("softmax", elements * size, elements * size)
            return [Operation(f"{self.name}.softmax", what)]
        # scale, mask, to fp32, softmax, back: five passes over the scores
        what = MemoryBound("softmax", elements * (4 * size + 8), elements * (3 * size + 8), kernels=5)
        return [Operation(f"{self.name}.softmax", what)]

    def _unfused_backward(self, shard: Shard) -> list[Operation]:
        queries, keys = shard.sequence_length // shard.cp, shard.sequence_length
        elements = self._score_elements(shard)
        size = elements * shard.bytes
        operations = [
            self._scores(shard, queries, keys, self.head_dim_v, "probability_gradient"),
            self._scores(shard, keys, self.head_dim_v, queries, "value_gradient"),
        ]
        if self.dropout:
            dropout = MemoryBound("dropout_backward", size + elements * MASK_BYTES, size)
            operations.append(Operation(f"{self.name}.dropout_backward", dropout))
        fused = shard.fused("masked_softmax")
        softmax = (
            MemoryBound("softmax_backward", 2 * size, size)
            if fused
            else MemoryBound("softmax_backward", 4 * size + 12 * elements, 3 * size + 8 * elements, kernels=5)
        )
        operations.append(Operation(f"{self.name}.softmax_backward", softmax))
        operations += [
            self._scores(shard, queries, self.head_dim, keys, "query_gradient"),
            self._scores(shard, keys, self.head_dim, queries, "key_gradient"),
        ]
        gradient = self._qkv_elements(shard) * shard.bytes
        operations.append(Operation(f"{self.name}.concatenate", MemoryBound("copy", gradient, gradient)))
        return operations + self._gather_keys(shard, backward=True)

    def _kv_bytes(self, shard: Shard) -> float:
        """Keys and values of the tokens on this GPU."""
        width = self._kv_heads(shard) * (self.head_dim + self.head_dim_v)
        return shard.tokens * width * shard.bytes

    def _gather_keys(self, shard: Shard, backward: bool) -> list[Operation]:
        """All-gather of keys and values over cp; backward sums their gradients back to the owners."""
        if shard.cp == 1:
            return []
        op = "reduce_scatter" if backward else "all_gather"
        collective = Collective(op, "cp", self._kv_bytes(shard) * shard.cp, shard.dtype)
        return [Operation(f"{self.name}.{op}", collective)]

    def _kernel(
        self, shard: Shard, queries: int, keys: int, causal: bool, backward: bool, cut: int = 1
    ) -> Operation:
        """One flash kernel; `cut` splits heads further (all-to-all)."""
        kernel = Attention(
            shard.micro_batch,
            self._heads(shard) // cut,
            max(1, self._kv_heads(shard) // cut),
            queries,
            keys,
            self.head_dim,
            self.head_dim_v,
            causal,
            shard.dtype,
            shard.attention,
            backward,
        )
        return Operation(f"{self.name}.{'backward' if backward else 'forward'}", kernel)

    def _keys(self, length: int) -> tuple[int, bool]:
        """Keys each query meets and whether the causal half applies: a window bounds both."""
        if self.window is not None and self.window < length:
            return self.window, False
        return length, self.causal

    def _exchanged(self, shard: Shard, backward: bool) -> list[Operation]:
        queries = shard.sequence_length // shard.cp
        keys, causal = self._keys(shard.sequence_length)
        if shard.cp == 1:
            return [self._kernel(shard, queries, keys, causal, backward)]
        if shard.context_exchange == "all_to_all":
            return self._all_to_all(shard, keys, causal, backward)
        if shard.context_exchange == "all_gather":
            gather = self._gather_keys(shard, backward=False)
            kernel = self._kernel(shard, queries, keys, causal, backward)
            return [*gather, kernel, *(self._gather_keys(shard, backward=True) if backward else [])]
        return self._ring(shard, backward)

    def _all_to_all(self, shard: Shard, keys: int, causal: bool, backward: bool) -> list[Operation]:
        """Ulysses (Jacobs et al. 2023): tokens for heads before the kernel, heads for tokens after it."""
        before = self._qkv_elements(shard) * shard.bytes
        after = shard.tokens * self._heads(shard) * self.head_dim_v * shard.bytes
        first, last = (after, before) if backward else (before, after)
        kernel = self._kernel(shard, shard.sequence_length, keys, causal, backward, cut=shard.cp)
        return [
            Operation(f"{self.name}.to_heads", Collective("all_to_all", "cp", first, shard.dtype)),
            kernel,
            Operation(f"{self.name}.to_tokens", Collective("all_to_all", "cp", last, shard.dtype)),
        ]

    def _ring(self, shard: Shard, backward: bool) -> list[Operation]:
        """Keys and values go round while the previous block is computed (Liu et al. 2023), zigzag.

        Step 0 is the causal diagonal; every other step meets half of the key block. Backward also passes the
        key and value gradients along: twice the message.
        """
        queries = shard.sequence_length // shard.cp
        message = self._kv_bytes(shard) * (2 if backward else 1)
        operations: list[Operation] = []
        for step in range(shard.cp):
            if step + 1 < shard.cp:
                send = Collective("send_recv", "cp", message, shard.dtype)
                operations.append(Operation(f"{self.name}.ring.{step}", send, asynchronous=True))
            keys = queries if step == 0 or not self.causal else queries // 2
            kernel = self._kernel(shard, queries, keys, self.causal and step == 0, backward)
            waits = (f"{self.name}.ring.{step - 1}",) if step else ()
            useful = 1.0 if keys == queries else queries / keys
            operations.append(Operation(kernel.label, kernel.what, waits_for=waits, useful=useful))
            if step and not backward:
                output = shard.tokens * self._heads(shard) * self.head_dim_v * shard.bytes
                merge = MemoryBound("add", 2 * output, output)
                operations.append(Operation(f"{self.name}.merge", merge))
        return operations
