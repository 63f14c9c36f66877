"""What multi-head latent attention costs around its core: narrow projections, their norms, rotary keys (MLA).

DeepSeek-AI 2024 (DeepSeek-V2, section 2.1): queries, and keys with values, pass through a narrow latent; a part of each
head's query and one key shared by all heads carry the rotary position.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Shard
from simulator.workloads.modules.dispatch import BranchSum
from simulator.workloads.modules.linear import ColumnLinear, ReplicatedLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.operators import Collective, MemoryBound


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Widths: of the query latent (None: queries are projected directly), of the key-value latent, and per head of
    the rotating part, the part without position, and the values.
    """

    query_rank: int | None
    key_value_rank: int
    rope: int
    plain: int
    value: int

    @property
    def head_dim(self) -> int:
        return self.plain + self.rope


@dataclass(frozen=True, kw_only=True)
class LatentRotary(Module):
    """Rotates parts of queries and the shared key, and lays queries, keys and values out for the core."""

    name: str
    source: str
    heads: int
    shape: LatentShape
    group: str = "latent_up"

    def _laid_out(self, shard: Shard) -> float:
        """Bytes of queries and keys (shared part repeated for each head) of this GPU."""
        return shard.tokens * (self.heads // shard.tp) * 2 * self.shape.head_dim * shard.bytes

    def _copies(self, shard: Shard, label: str) -> Operation:
        """Fused: one pass over queries and one over keys. Else PyTorch's own operators, as Megatron-Core lists them:

        interleaving, angles, products and sums of the small rotary parts, 13 kernels each for queries and key (11
        backward), then repetition and concatenation.
        """
        size = self._laid_out(shard)
        apart = 29 if label == "forward" else 25
        kernels, passes = (2, 1) if shard.fused("rope") else (apart, 3)
        what = MemoryBound("rotary", passes * size, passes * size, kernels)
        return Operation(f"{self.name}.{label}", what)

    def _shared_key(self, shard: Shard, op: str) -> list[Operation]:
        if shard.tp == 1:
            return []
        size = shard.tokens * self.shape.rope * shard.bytes
        return [Operation(f"{self.name}.{op}", Collective(op, "tp", size, shard.dtype))]

    def forward(self, shard: Shard) -> list[Operation]:
        gather = self._shared_key(shard, "all_gather") if shard.sequence_parallel else []
        return [*gather, self._copies(shard, "forward")]

    def backward(self, shard: Shard) -> list[Operation]:
        op = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
        return [self._copies(shard, "backward"), *self._shared_key(shard, op)]


def latent_projections(source: str, hidden: int, heads: int, shape: LatentShape) -> list[Module]:
    """From the normed input to what the core attends to (named `rotary`)."""
    modules: list[Module] = [BranchSum(name="latent_sum", source=source, width=hidden, shared=False)]
    queries, rank = heads * shape.head_dim, shape.query_rank
    if rank is None:
        modules.append(_up("query_up", source, hidden, queries))
    else:
        modules += [
            _down("query_down", source, hidden, rank),
            _norm("query_norm", "query_down", rank),
            _up("query_up", "query_norm", rank, queries),
        ]
    rank = shape.key_value_rank
    return [
        *modules,
        _down("key_value_down", source, hidden, rank + shape.rope),
        _norm("key_value_norm", "key_value_down", rank),
        _up("key_value_up", "key_value_norm", rank, heads * (shape.plain + shape.value)),
        LatentRotary(name="rotary", source="query_up", heads=heads, shape=shape),
    ]


def _down(name: str, source: str, hidden: int, rank: int) -> ReplicatedLinear:
    return ReplicatedLinear(name=name, source=source, inputs=hidden, outputs=rank, bias=False, narrow=True)


def _norm(name: str, source: str, rank: int) -> Norm:
    return Norm(
        name=name, source=source, width=rank, kind="rms", bias=False, residual=False, group="latent_up"
    )


def _up(name: str, source: str, rank: int, width: int) -> ColumnLinear:
    return ColumnLinear(name=name, source=source, inputs=rank, parts=(width,), bias=False, group="latent_up")
