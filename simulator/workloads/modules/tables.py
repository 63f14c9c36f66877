"""Embedding tables of a recommendation model, dealt out over GPUs, beside the perceptron of its dense input.

Every GPU looks up whole tables for the samples of its whole group and hands the pooled rows to those whose samples they
are (all-to-all); gradients come back the same way and update the rows at once, so that nothing of a table is ever
reduced. Meanwhile the dense input runs through its layers. Tables rest on the GPU; in the host's memory, from which
every row crosses the host link; or in memory that adds up rows itself, so that only the sums do (Kwon et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.modules.lookup import INDEX_BYTES, distinct_rows
from simulator.workloads.operators import DTYPE_BYTES, Collective, Gemm, MemoryBound


@dataclass(frozen=True, slots=True)
class Table:
    """`lookups` rows per sample of a table [rows, width], added up; the i-th row is drawn ~ 1/i^skew."""

    rows: int
    width: int
    lookups: int
    skew: float

    @property
    def parameters(self) -> int:
        return self.rows * self.width


Work = Callable[[Sequence[Table], Shard], Iterator[Operation]]


@lru_cache(maxsize=64)
def dealt(tables: tuple[Table, ...], ranks: int) -> tuple[tuple[Table, ...], ...]:
    """The tables of each rank: the largest first, each to whoever has least; cut by columns where there are too few."""
    cuts = -(-ranks // len(tables))
    pieces = [
        replace(table, width=table.width // cuts + (part < table.width % cuts))
        for table in tables
        for part in range(cuts)
    ]
    hands: list[list[Table]] = [[] for _ in range(ranks)]
    held = [0] * ranks
    for piece in sorted(pieces, key=lambda one: -one.parameters):
        # of equal hands the one with fewer tables: small tables cost lookups, not memory
        least = min(range(ranks), key=lambda rank: (held[rank], len(hands[rank])))
        hands[least].append(piece)
        held[least] += piece.parameters
    return tuple(map(tuple, hands))


@dataclass(frozen=True, kw_only=True)
class Tables(Module):
    """Look-ups and what is exchanged for them, with `beside` (modules of the dense input) while it travels.

    Ranks wait for one another in the exchange, so that the one with most to look up sets the pace of all.
    """

    name: str
    source: str
    tables: tuple[Table, ...]
    beside: tuple[Module, ...]
    group: str = ""

    @property
    def width(self) -> int:
        """Elements per sample of all pooled rows."""
        return sum(table.width for table in self.tables)

    def hands(self, shard: Shard) -> tuple[tuple[Table, ...], ...]:
        return dealt(self.tables, shard.ep)

    def parameters(self, shard: Shard) -> Parameters:
        """Those of the rank that holds most."""
        count = max(sum(table.parameters for table in hand) for hand in self.hands(shard))
        dense = sum((module.parameters(shard) for module in self.beside), Parameters())
        sparse = _owned(shard) or shard.sparse != "dense"
        return dense + (Parameters(tables=count) if sparse else Parameters(embeddings=count))

    def forward(self, shard: Shard) -> list[Operation]:
        found = [self._exchange("indices", shard, self._indices(shard), False)]
        found += self._worst(shard, self._look_up)
        found.append(self._exchange("to_samples", shard, self._pooled(shard), True))
        for module in self.beside:
            found += module.forward(shard)
        return [one for one in found if one is not None]

    def backward(self, shard: Shard) -> list[Operation]:
        found = [self._exchange("to_tables", shard, self._pooled(shard), True)]
        for module in reversed(self.beside):
            found += module.backward(shard)
        update = self._worst(shard, self._update)
        waits = () if shard.ep == 1 else (f"{self.name}.to_tables",)
        return [one for one in [*found, replace(update[0], waits_for=waits), *update[1:]] if one is not None]

    def saved(self, shard: Shard) -> list[Saved]:
        tensors = [saved for module in self.beside for saved in module.saved(shard)]
        return [*tensors, Saved(f"{self.name}.indices", self._indices(shard))]

    def touched_bytes(self, shard: Shard, passes: float) -> float:
        if _owned(shard):
            return 0.0  # what is met is met by its owner alone
        row = DTYPE_BYTES[shard.gradient_dtype]
        draws = passes * shard.tokens
        return sum(self._met(table, draws) * (table.width * row + INDEX_BYTES) for table in self.tables)

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._pooled(shard) + max((m.transient_bytes(shard) for m in self.beside), default=0.0)

    # --- sizes -------------------------------------------------------------------------------------------------------

    def _samples(self, shard: Shard) -> int:
        """Of the whole group."""
        return shard.tokens * shard.ep

    def _met(self, table: Table, samples: float) -> float:
        return distinct_rows(table.rows, table.skew, samples * table.lookups)

    def _indices(self, shard: Shard) -> float:
        return float(shard.tokens * sum(table.lookups for table in self.tables)) * INDEX_BYTES

    def _pooled(self, shard: Shard) -> float:
        """Of this rank's samples from all tables."""
        return float(shard.tokens * self.width) * shard.bytes

    def _exchange(self, label: str, shard: Shard, size: float, asynchronous: bool) -> Operation | None:
        """An all-to-all in which the fullest rank's share counts for everybody's."""
        if shard.ep == 1:
            return None
        hands = self.hands(shard)
        most = max(sum(table.width for table in hand) for hand in hands)
        fullest = most * shard.ep / self.width
        what = Collective("all_to_all", "ep", size * fullest, shard.dtype)
        return Operation(f"{self.name}.{label}", what, asynchronous=asynchronous)

    # --- tables ------------------------------------------------------------------------------------------------------

    def _worst(self, shard: Shard, work: Work) -> list[Operation]:
        """The work of the rank that moves most."""
        hands = [hand for hand in self.hands(shard) if hand]
        return list(work(max(hands, key=lambda hand: sum(one.lookups * one.width for one in hand)), shard))

    def _look_up(self, hand: Sequence[Table], shard: Shard) -> Iterator[Operation]:
        rows, sums = self._moved(hand, shard)
        label = f"{self.name}.forward"
        if shard.table_memory == "near_memory":
            yield Operation(label, Collective(f"pooled_in {rows / sums!r}", "host", sums, shard.dtype))
            return
        if shard.table_memory == "host":
            yield Operation(f"{self.name}.fetch", Collective("from_host", "host", rows, shard.dtype))
        yield Operation(label, MemoryBound("embedding", rows, sums))

    def _update(self, hand: Sequence[Table], shard: Shard) -> Iterator[Operation]:
        """Gradients of sums become those of rows, which are updated at once where they are."""
        rows, sums = self._moved(hand, shard)
        samples, wide = self._samples(shard), DTYPE_BYTES[shard.gradient_dtype]
        met = sum(self._met(table, samples) * table.width for table in hand)
        label = f"{self.name}.update"
        if shard.table_memory == "near_memory":
            out = Collective(f"pooled_out {rows / sums!r}", "host", sums, shard.dtype)
            yield Operation(label, out, weight_gradient=True)
            return
        read, written = sums + met * wide, met * wide
        if _owned(shard):
            read, written = read + met * shard.bytes, written + met * shard.bytes
        elif (
            shard.sparse == "dense"
        ):  # zeroed as a whole, then the rows met are added; else only collected, to be summed
            written += sum(table.parameters for table in hand) * wide
        what = MemoryBound("embedding_backward", read, written, kernels=2)
        yield Operation(label, what, weight_gradient=True)
        if shard.table_memory == "host":
            yield Operation(
                f"{self.name}.return", Collective("to_host", "host", met * shard.bytes, shard.dtype)
            )

    def _moved(self, hand: Sequence[Table], shard: Shard) -> tuple[float, float]:
        """Bytes of all rows that are looked up, and of their sums."""
        samples = self._samples(shard) * shard.bytes
        rows = sum(table.lookups * table.width for table in hand)
        return float(samples * rows), float(samples * sum(table.width for table in hand))


def _owned(shard: Shard) -> bool:
    """Whether every table stands once, so that its rows are updated at once."""
    return shard.ep > 1 or shard.table_memory != "hbm"


@dataclass(frozen=True, kw_only=True)
class Interaction(Module):
    """Products of every pair of `vectors` of `width` elements per sample; those and the first vector go on."""

    name: str
    source: str
    vectors: int
    width: int
    group: str = ""

    @property
    def outputs(self) -> int:
        return self.vectors * (self.vectors - 1) // 2 + self.width

    def forward(self, shard: Shard) -> list[Operation]:
        gemm = Gemm(self.vectors, self.vectors, self.width, shard.product_dtype, batch=shard.tokens)
        pairs = shard.tokens * self.vectors**2 * shard.bytes
        taken = MemoryBound("copy", pairs, shard.tokens * self.outputs * shard.bytes)
        return [Operation(f"{self.name}.forward", gemm), Operation(f"{self.name}.pairs", taken)]

    def backward(self, shard: Shard) -> list[Operation]:
        gemm = Gemm(self.vectors, self.width, self.vectors, shard.product_dtype, batch=shard.tokens)
        pairs = shard.tokens * self.vectors**2 * shard.bytes
        spread = MemoryBound("copy", shard.tokens * self.outputs * shard.bytes, pairs)
        return [
            Operation(f"{self.name}.pairs_backward", spread),
            Operation(f"{self.name}.left_gradient", gemm),
            Operation(f"{self.name}.right_gradient", gemm),
        ]

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(f"{self.name}.vectors", shard.tokens * self.vectors * self.width * shard.bytes)]

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * shard.tokens * self.vectors * max(self.vectors, self.width) * shard.bytes
