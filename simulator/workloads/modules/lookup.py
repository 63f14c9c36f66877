"""Tables of which a sample needs a few rows: what a look-up costs, and how many rows are met."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simulator.workloads.layers import Module, Operation, Parameters, Shard
from simulator.workloads.operators import DTYPE_BYTES, MemoryBound

INDEX_BYTES = 8.0
"""Of the number of a row, where rows travel with their numbers."""


@lru_cache(maxsize=4096)
def distinct_rows(rows: int, skew: float, draws: float) -> float:
    """Expected number of different rows in so many independent draws, the i-th with probability ~ 1/i^skew.

    sum over i of 1 - (1 - p_i)^draws; beyond the first rows over stretches of equal probability.
    """
    edges = np.unique(
        np.concatenate([np.arange(1.0, 4097.0), np.geomspace(4096.0, rows + 1.0, 4096), [rows + 1.0]])
    )
    edges = edges[edges <= rows + 1.0]
    count, middle = np.diff(edges), np.maximum(1.0, (edges[:-1] + edges[1:] - 1.0) / 2.0)
    share = middle**-skew
    share /= (count * share).sum()
    return float((count * -np.expm1(draws * np.log1p(-np.minimum(share, 1.0 - 1e-15)))).sum())


@dataclass(frozen=True, kw_only=True)
class Lookup(Module):
    """`lookups` rows per token of a table [rows, width], added up where `pooled`.

    Its gradient is dense, like any other, where `shard.sparse` says so; else it is the rows that were met.
    """

    name: str
    source: str
    rows: int
    width: int
    lookups: int
    pooled: bool
    skew: float
    group: str = ""

    def parameters(self, shard: Shard) -> Parameters:
        count = self.rows * self.width
        return Parameters(embeddings=count) if shard.sparse == "dense" else Parameters(tables=count)

    def forward(self, shard: Shard) -> list[Operation]:
        what = MemoryBound("embedding", self._read(shard), self._output(shard))
        return [Operation(f"{self.name}.forward", what)]

    def backward(self, shard: Shard) -> list[Operation]:
        wide = DTYPE_BYTES[shard.gradient_dtype] / shard.bytes
        written = self._read(shard) * wide
        if shard.sparse == "dense":  # zeroed as a whole, then the rows met are added
            written += self.rows * self.width * DTYPE_BYTES[shard.gradient_dtype]
        what = MemoryBound(
            "embedding_backward", self._output(shard) + self._read(shard) * wide, written, kernels=2
        )
        return [Operation(f"{self.name}.weight_gradient", what, weight_gradient=True)]

    def touched_bytes(self, shard: Shard, passes: float) -> float:
        row = self.width * DTYPE_BYTES[shard.gradient_dtype] + INDEX_BYTES
        return distinct_rows(self.rows, self.skew, passes * shard.tokens * self.lookups) * row

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._output(shard)

    def _read(self, shard: Shard) -> float:
        return float(shard.tokens * self.lookups * self.width) * shard.bytes

    def _output(self, shard: Shard) -> float:
        return self._read(shard) / (self.lookups if self.pooled else 1)
