"""What the attention core costs, between the query-key-value and the output projection.

Unfused (scores, softmax, dropout, context as separate kernels) or one flash kernel; what a context-parallel group
sends is in context_parallel.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Operation, Parameters, Saved, Shard
from simulator.workloads.modules.context_parallel import context_buffers, exchanged, gather_keys
from simulator.workloads.modules.heads import Heads
from simulator.workloads.operators import Gemm, MemoryBound, aligned

MASK_BYTES = 1.0
LOG_SUM_EXP_BYTES = 4.0


@dataclass(frozen=True, kw_only=True)
class CoreAttention(Heads):
    """softmax(Q K^T) V over heads split by tp; selective recomputation reruns it, keeping the output."""

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(vectors=self.num_heads(shard) if self.sinks else 0)

    def forward(self, shard: Shard) -> list[Operation]:
        if shard.attention == "unfused":
            return self._unfused_forward(shard)
        operations = exchanged(self, shard, backward=False)
        return self._unpadded_forward(operations, shard) if shard.unpads else operations

    def backward(self, shard: Shard) -> list[Operation]:
        if shard.attention == "unfused":
            return self._unfused_backward(shard)
        operations = exchanged(self, shard, backward=True)
        return self._unpadded_backward(operations, shard) if shard.unpads else operations

    def saved(self, shard: Shard) -> list[Saved]:
        """Queries, keys, values; probabilities, dropout mask and result, or output and log-sum-exp."""
        tensors = [Saved(self.source, self.qkv_elements(shard) * shard.bytes)]
        if shard.attention == "unfused":
            scores = self._score_elements(shard)
            tensors.append(Saved(f"{self.name}.probabilities", scores * shard.bytes))
            if self.dropout:
                tensors.append(Saved(f"{self.name}.mask", scores * MASK_BYTES))
                tensors.append(Saved(f"{self.name}.dropped", scores * shard.bytes))
            return tensors
        rows = shard.tokens * self.num_heads(shard)
        tensors.append(Saved(self.name, rows * self.head_dim_v * shard.bytes))
        return [*tensors, Saved(f"{self.name}.log_sum_exp", rows * LOG_SUM_EXP_BYTES)]

    def transient_bytes(self, shard: Shard) -> float:
        gradients = 2 * self.qkv_elements(shard) * shard.bytes + context_buffers(self, shard)
        if shard.attention == "unfused":
            return gradients + 2 * self._score_elements(shard) * shard.bytes
        return gradients

    def _score_elements(self, shard: Shard) -> float:
        queries = shard.sequence_length // shard.cp
        return float(shard.micro_batch * self.num_heads(shard) * queries * shard.sequence_length)

    def _scores(self, shard: Shard, m: int, n: int, k: int, label: str) -> Operation:
        dtype = shard.product_dtype
        whole = aligned(dtype, m, n, k)
        gemm = Gemm(m, n, k, dtype, batch=shard.micro_batch * self.num_heads(shard), aligned=whole)
        return Operation(f"{self.name}.{label}", gemm, useful=1.0 / shard.tp_x)

    def filled(self, shard: Shard) -> float:
        """Scores between tokens of one document, of all scores computed."""
        if not shard.unpadded:
            return shard.filled
        return self._num_scores(shard.unpadded) / self._num_scores(shard.sequences)

    def _num_scores(self, sequences: tuple[tuple[int, int], ...]) -> float:
        window = self.window
        return sum(float(n) * length * min(length, window or length) for length, n in sequences)

    def _unfused_forward(self, shard: Shard) -> list[Operation]:
        queries, keys = shard.sequence_length // shard.cp, shard.sequence_length
        size = self._score_elements(shard) * shard.bytes
        operations = gather_keys(self, shard, backward=False)
        operations.append(self._scores(shard, queries, keys, self.head_dim, "scores"))
        operations += self._softmax_forward(shard)
        if self.dropout:
            dropout = MemoryBound("dropout", size, size + self._score_elements(shard) * MASK_BYTES)
            operations.append(Operation(f"{self.name}.dropout", dropout))
        operations.append(self._scores(shard, queries, self.head_dim_v, keys, "context"))
        output = shard.tokens * self.num_heads(shard) * self.head_dim_v * shard.bytes
        # heads and tokens change places: the context is copied into contiguous memory
        operations.append(Operation(f"{self.name}.copy", MemoryBound("copy", output, output)))
        return operations

    def _softmax_forward(self, shard: Shard) -> list[Operation]:
        elements, size = self._score_elements(shard), shard.bytes
        if shard.fused("masked_softmax"):
            what = MemoryBound("softmax", elements * size, elements * size)
            return [Operation(f"{self.name}.softmax", what)]
        if not _casts_scores(shard):  # scale, mask, softmax
            what = MemoryBound("softmax", 3 * elements * size, 3 * elements * size, kernels=3)
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
        if shard.fused("masked_softmax"):
            softmax = MemoryBound("softmax_backward", 2 * size, size)
        elif not _casts_scores(shard):  # the gradient of the mask is nobody's
            softmax = MemoryBound("softmax_backward", 3 * size, 2 * size, kernels=2)
        else:
            read, written = 4 * size + 12 * elements, 3 * size + 8 * elements
            softmax = MemoryBound("softmax_backward", read, written, kernels=5)
        operations.append(Operation(f"{self.name}.softmax_backward", softmax))
        operations += [
            self._scores(shard, queries, self.head_dim, keys, "query_gradient"),
            self._scores(shard, keys, self.head_dim, queries, "key_gradient"),
        ]
        gradient = self.qkv_elements(shard) * shard.bytes
        operations.append(Operation(f"{self.name}.concatenate", MemoryBound("copy", gradient, gradient)))
        return operations + gather_keys(self, shard, backward=True)

    def _unpadded_forward(self, operations: list[Operation], shard: Shard) -> list[Operation]:
        """Queries, keys and values are gathered; the result goes into zeroed memory."""
        size, result = self.qkv_elements(shard) * shard.bytes, self.output_bytes(shard)
        gather = MemoryBound("copy", size, size, kernels=3)
        scatter = MemoryBound("copy", result, 2 * result, kernels=2)
        return [
            Operation(f"{self.name}.unpad", gather),
            *operations,
            Operation(f"{self.name}.pad", scatter),
        ]

    def _unpadded_backward(self, operations: list[Operation], shard: Shard) -> list[Operation]:
        """The same the other way round: the gradient of the result is gathered, three are scattered."""
        size, result = self.qkv_elements(shard) * shard.bytes, self.output_bytes(shard)
        gather = MemoryBound("copy", result, result)
        scatter = MemoryBound("copy", size, 2 * size, kernels=6)
        return [
            Operation(f"{self.name}.pad_backward", gather),
            *operations,
            Operation(f"{self.name}.unpad_backward", scatter),
        ]


def _casts_scores(shard: Shard) -> bool:
    """Whether the softmax of 16-bit scores runs on an fp32 copy, as Megatron asks for (attention_softmax_in_fp32)."""
    return shard.bytes < 4 and not shard.fused("narrow_softmax")
