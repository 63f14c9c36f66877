"""What it costs to bring tokens to their experts and back: the choice, permutations and all-to-all.

Lepikhin et al. 2020 (GShard): every rank sends each token to the ranks that hold its experts, and the results come
back the same way. Between the all-to-all and the experts, ranks that split one expert (etp) gather their tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.modules.experts import ExpertLoad, expert_load
from simulator.workloads.operators import DTYPE_BYTES, Collective, MemoryBound
from simulator.workloads.routing import distinct_ranks

FLOAT = 4.0
INDEX_BYTES = 8.0


@dataclass(frozen=True, kw_only=True)
class ExpertChoice(Module):
    """Scores of all experts to the `top_k` of each token: softmax or sigmoid, selection, balance loss, in fp32.

    `correction`: a bias per expert that steers the choice (DeepSeek-V3), set by rule and not by gradients.
    """

    name: str
    source: str
    num_experts: int
    top_k: int
    correction: bool = False
    group: str = "moe"

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters(vectors=self.num_experts if self.correction else 0)

    def _scores(self, shard: Shard) -> float:
        return shard.norm_tokens * self.num_experts * FLOAT

    def forward(self, shard: Shard) -> list[Operation]:
        size = self._scores(shard)
        if shard.fused("router"):
            what = MemoryBound("softmax", size, 2 * size, kernels=2)
        else:
            # Megatron-Core's moe_utils and router: cast, scores, selection, normalisation, scatter of map and values
            # (20 kernels), scores and map again for the balance loss, the loss, counts of tokens (20)
            what = MemoryBound("softmax", 12 * size, 12 * size, kernels=40)
        return [Operation(f"{self.name}.forward", what)]

    def backward(self, shard: Shard) -> list[Operation]:
        size = self._scores(shard)
        if shard.fused("router"):
            what = MemoryBound("softmax_backward", 2 * size, size, kernels=2)
        else:
            what = MemoryBound("softmax_backward", 10 * size, 8 * size, kernels=20)
        return [Operation(f"{self.name}.backward", what)]

    def saved(self, shard: Shard) -> list[Saved]:
        """Probabilities, and the map of choices (a byte per token and expert)."""
        elements = shard.norm_tokens * self.num_experts
        return [Saved(f"{self.name}.probabilities", elements * FLOAT), Saved(f"{self.name}.map", elements)]


@dataclass(frozen=True, kw_only=True)
class _Exchange(Module):
    """Rows of `width` elements between the order of tokens and the order of experts.

    `carries_gates`: their gate values travel with the rows, and the gradients of those travel back.
    """

    carries_gates: ClassVar[bool] = False

    name: str
    source: str
    width: int
    num_experts: int
    top_k: int
    groups: int = 1
    groups_per_token: int = 1
    group: str = "moe"

    def _load(self, shard: Shard) -> ExpertLoad:
        return expert_load(shard, self.num_experts, self.top_k)

    def _bytes(self, shard: Shard, rows: float) -> float:
        return rows * self.width * shard.bytes

    def _once_per_rank(self, shard: Shard) -> bool:
        """Whether a token travels once to each rank, however many of its experts stand there."""
        return shard.ep > 1 and (shard.routing.deduplicated or shard.routing.domain is not None)

    def _copies(self, shard: Shard, num_ranks: int) -> float:
        """Rows sent to so many equal parts of the expert group, a token once to each that has its experts."""
        load = self._load(shard)
        distinct = distinct_ranks(self.num_experts, num_ranks, self.top_k, self.groups, self.groups_per_token)
        return load.rows * distinct / self.top_k

    def _travelling(self, shard: Shard) -> float:
        """Rows that a rank sends to the ranks of its expert group, its own included."""
        return self._copies(shard, shard.ep) if self._once_per_rank(shard) else float(self._load(shard).rows)

    def _exchange(self, shard: Shard, dtype: str, label: str, returns: bool) -> list[Operation]:
        """All-to-all over the expert group; with a domain first between nodes, then inside, and back in reverse."""
        size, domain = self.width * DTYPE_BYTES[dtype], shard.routing.domain
        if self.carries_gates and self._once_per_rank(shard):
            size += FLOAT * self.num_experts * min(1.0, (domain or shard.ep) / shard.ep)
        ways = [("ep", self._travelling(shard))]
        if domain is not None and 1 < domain < shard.ep:
            across = self._copies(shard, shard.ep // domain)
            ways = [("ep_across", across), ("ep_inside", self._travelling(shard))]
        exchange = [
            Operation(
                f"{self.name}.{label}all_to_all{axis.removeprefix('ep')}",
                Collective("all_to_all", axis, rows * size, dtype),
            )
            for axis, rows in (reversed(ways) if returns else ways)
        ]
        if self.carries_gates and not self._once_per_rank(shard):
            gates = Collective("all_to_all", "ep", self._load(shard).rows * FLOAT, "fp32")
            exchange.append(Operation(f"{self.name}.{label}gates", gates))
        return exchange

    def _counts(self, shard: Shard, label: str) -> list[Operation]:
        """Ranks tell one another how many tokens each expert gets, unless buffers have fixed sizes.

        Where a token travels once to each rank, all of them need every token's choice, a byte per expert, and look
        through those for what comes to them.
        """
        if shard.routing.capacity is not None or label or shard.ep == 1:
            return []
        if not self._once_per_rank(shard):
            size = shard.ep * self.num_experts * INDEX_BYTES
            return [Operation(f"{self.name}.counts", Collective("all_gather", "ep", size, "int8"))]
        size = float(shard.ep * self._load(shard).tokens * self.num_experts)
        looked = MemoryBound("permute", size, 0.0, kernels=2)
        return [
            Operation(f"{self.name}.choices", Collective("all_gather", "ep", size, "int8")),
            Operation(f"{self.name}.look_up", looked),
        ]

    def _awaited(self, operations: list[Operation], shard: Shard, label: str) -> list[Operation]:
        """The host must know those numbers before it can launch what follows."""
        if shard.routing.capacity is not None or label or not operations:
            return operations
        return [replace(operations[0], awaited=True), *operations[1:]]

    def _padded(self, shard: Shard, label: str) -> list[Operation]:
        """Each expert's rows rounded up to what narrow GEMMs take: a copy of all, unless the exchange does it."""
        if not shard.low_precision or self._once_per_rank(shard) or shard.routing.capacity is not None:
            return []
        gathered = self._bytes(shard, self._load(shard).gathered)
        return [self._order(shard, label, gathered, gathered)]

    def _order(self, shard: Shard, label: str, read: float, written: float) -> Operation:
        """Rows copied into another order; unfused: also sorting and gathering of indices."""
        kernels = 1 if shard.fused("permute") else 3
        return Operation(f"{self.name}.{label}", MemoryBound("permute", read, written, kernels))

    def _there(self, shard: Shard, dtype: str, label: str) -> list[Operation]:
        """Tokens copied per expert, to the experts' ranks, gathered over etp, in the experts' order."""
        load, rows = self._load(shard), self._travelling(shard)
        size = self._bytes(shard, rows)
        operations = self._counts(shard, label)
        if not self._once_per_rank(shard):
            operations.append(self._order(shard, f"{label}permute", self._bytes(shard, load.tokens), size))
        if shard.ep > 1:
            narrow = DTYPE_BYTES[dtype]
            if narrow < shard.bytes:
                cast = MemoryBound("cast", size, rows * self.width * narrow)
                operations.append(Operation(f"{self.name}.{label}cast", cast))
            operations += self._awaited(self._exchange(shard, dtype, label, returns=False), shard, label)
        else:
            operations = self._awaited(operations, shard, label)
        gathered = self._bytes(shard, load.gathered)
        if shard.sequence_parallel and shard.etp > 1:
            gather = Collective("all_gather", "etp", gathered, shard.dtype)
            operations.append(Operation(f"{self.name}.{label}all_gather", gather))
        if load.groups > 1 and shard.ep > 1:
            operations.append(self._order(shard, f"{label}sort", gathered, gathered))
        return operations + self._padded(shard, f"{label}pad")

    def _back(self, shard: Shard, label: str) -> list[Operation]:
        """The way of `_there` backwards: sums over etp, all-to-all, sums over the experts of a token."""
        load, rows = self._load(shard), self._travelling(shard)
        size, gathered = self._bytes(shard, rows), self._bytes(shard, load.gathered)
        operations = self._padded(shard, f"{label}unpad")
        if load.groups > 1 and shard.ep > 1:
            operations.append(self._order(shard, f"{label}unsort", gathered, gathered))
        if shard.sequence_parallel and shard.etp > 1:
            scatter = Collective("reduce_scatter", "etp", gathered, shard.dtype)
            operations.append(Operation(f"{self.name}.{label}reduce_scatter", scatter))
        if shard.ep > 1:
            operations += self._exchange(shard, shard.dtype, label, returns=True)
        own = self._bytes(shard, load.tokens)
        operations.append(self._order(shard, f"{label}unpermute", size, own))
        if shard.tp > 1 and not shard.sequence_parallel:
            total = Collective("all_reduce", "tp", own, shard.dtype)
            operations.append(Operation(f"{self.name}.{label}all_reduce", total))
        return operations

    def transient_bytes(self, shard: Shard) -> float:
        load = self._load(shard)
        return self._bytes(shard, load.rows + load.gathered)


@dataclass(frozen=True, kw_only=True)
class Dispatch(_Exchange):
    """Tokens to experts; backward brings their gradients back. Keeps where each row came from."""

    carries_gates: ClassVar[bool] = True

    def forward(self, shard: Shard) -> list[Operation]:
        return self._there(shard, shard.routing.dtype or shard.dtype, "")

    def backward(self, shard: Shard) -> list[Operation]:
        return self._back(shard, "gradient_")

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(f"{self.name}.rows", self._load(shard).gathered * INDEX_BYTES)]


@dataclass(frozen=True, kw_only=True)
class Combine(_Exchange):
    """Results back to their tokens, summed over each token's experts; backward sends their gradient out again."""

    def forward(self, shard: Shard) -> list[Operation]:
        return self._back(shard, "")

    def backward(self, shard: Shard) -> list[Operation]:
        return self._there(shard, shard.dtype, "gradient_")


@dataclass(frozen=True, kw_only=True)
class BranchSum(Module):
    """The experts' output plus that of the shared expert, if there is one.

    Backward adds up the input's gradients: of the router, the routed and the shared experts.
    """

    name: str
    source: str
    width: int
    shared: bool
    group: str = ""

    def _add(self, shard: Shard, label: str) -> Operation:
        size = shard.norm_tokens * self.width * shard.bytes
        return Operation(f"{self.name}.{label}", MemoryBound("add", 2 * size, size))

    def forward(self, shard: Shard) -> list[Operation]:
        return [self._add(shard, "forward")] if self.shared else []

    def backward(self, shard: Shard) -> list[Operation]:
        return [self._add(shard, "backward")] * (2 if self.shared else 1)
