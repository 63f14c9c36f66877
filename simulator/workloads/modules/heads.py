"""Heads of attention: how many this GPU has, how large their tensors are, and the flash kernel over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Shard
from simulator.workloads.operators import Attention

Sizes = tuple[int, int, int]
"""(how many sequences, queries of each, keys of each)"""


@dataclass(frozen=True, kw_only=True)
class Heads(Module):
    """Heads split by tp.

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

    def num_heads(self, shard: Shard) -> int:
        return self.heads // shard.tp

    def num_kv_heads(self, shard: Shard) -> int:
        return max(1, self.kv_heads // shard.tp)

    def qkv_elements(self, shard: Shard) -> float:
        kv = self.num_kv_heads(shard) * (self.head_dim + self.head_dim_v)
        return float(shard.tokens * (self.num_heads(shard) * self.head_dim + kv))

    def kv_bytes(self, shard: Shard) -> float:
        """Keys and values of the tokens on this GPU."""
        width = self.num_kv_heads(shard) * (self.head_dim + self.head_dim_v)
        return shard.tokens * width * shard.bytes

    def kernel(
        self, shard: Shard, sequences: Sequence[Sizes], causal: bool, backward: bool, cut: int = 1
    ) -> Operation:
        """One flash kernel over `sequences`: (how many, queries, keys) of each length.

        `cut` splits heads further (after an exchange of heads for tokens).
        """
        alike = len(sequences) == 1
        count, queries, keys = sequences[0] if alike else (sum(s[0] for s in sequences), 0, 0)
        kernel = Attention(
            count,
            self.num_heads(shard) // cut,
            max(1, self.num_kv_heads(shard) // cut),
            queries,
            keys,
            self.head_dim,
            self.head_dim_v,
            causal,
            shard.dtype,
            shard.attention,
            backward,
            () if alike else tuple(sequences),
            windowed=not causal and all(met == self.window for _, _, met in sequences),
        )
        label = f"{self.name}.{'backward' if backward else 'forward'}"
        return Operation(label, kernel, useful=1.0 / shard.tp_x)  # X ranks repeat one another's heads

    def output_bytes(self, shard: Shard) -> float:
        """The result for the tokens on this GPU."""
        return shard.tokens * self.num_heads(shard) * self.head_dim_v * shard.bytes
