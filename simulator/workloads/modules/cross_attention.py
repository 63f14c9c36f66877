"""What attention costs whose keys and values come from another sequence."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Saved, Shard
from simulator.workloads.modules.attention import LOG_SUM_EXP_BYTES
from simulator.workloads.operators import Attention


@dataclass(frozen=True, kw_only=True)
class CrossAttention(Module):
    """softmax(Q K^T) V of the layer's positions over `keys` others; heads split by tp. Always one fused kernel."""

    name: str
    source: str
    heads: int
    head_dim: int
    keys: int
    group: str = "core_attention"
    keeps_output: bool = True

    def _kernel(self, shard: Shard, backward: bool) -> Attention:
        heads = self.heads // shard.tp
        kernel = "flash2" if shard.attention == "unfused" else shard.attention
        sizes = (
            shard.micro_batch,
            heads,
            heads,
            shard.sequence_length,
            self.keys,
            self.head_dim,
            self.head_dim,
        )
        return Attention(*sizes, False, shard.dtype, kernel, backward)

    def forward(self, shard: Shard) -> list[Operation]:
        return [Operation(f"{self.name}.forward", self._kernel(shard, False))]

    def backward(self, shard: Shard) -> list[Operation]:
        return [Operation(f"{self.name}.backward", self._kernel(shard, True))]

    def saved(self, shard: Shard) -> list[Saved]:
        width = self.heads // shard.tp * self.head_dim * shard.bytes
        rows = shard.tokens * (self.heads // shard.tp)
        return [
            Saved(self.source, shard.tokens * width),
            Saved(f"{self.name}.keys_values", 2 * shard.micro_batch * self.keys * width),
            Saved(self.name, shard.tokens * width),
            Saved(f"{self.name}.log_sum_exp", rows * LOG_SUM_EXP_BYTES),
        ]

    def transient_bytes(self, shard: Shard) -> float:
        width = self.heads // shard.tp * self.head_dim * shard.bytes
        return 2 * (shard.tokens + 2 * shard.micro_batch * self.keys) * width
