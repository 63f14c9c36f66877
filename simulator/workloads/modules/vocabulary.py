"""What the two ends of a language model cost: the embedding and the loss over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Layer, Module, Operation, Parameters, Saved, Shard
from simulator.workloads.operators import DTYPE_BYTES, Collective, MemoryBound


@dataclass(frozen=True, kw_only=True)
class Embedding(Module):
    """A table [vocab, width] split over tp by vocabulary; whole tables of positions and segments.

    `owner` is False for a second look-up in the same table, which is counted where it is on another stage.
    """

    name: str
    width: int
    vocab: int
    tables: tuple[int, ...] = ()  # rows of the learned position and segment tables
    dropout: bool = True
    owner: bool = True
    source: str = ""
    group: str = ""

    def parameters(self, shard: Shard) -> Parameters:
        if not self.owner and not shard.separate_head:
            return Parameters()
        rows = shard.padded_vocab(self.vocab) // shard.tp + sum(self.tables)
        return Parameters(embeddings=self._elements(rows, shard))

    def shareable(self, shard: Shard) -> int:
        """Elements on each GPU of the table that a head may share: not those of positions and segments."""
        return self._elements(shard.padded_vocab(self.vocab) // shard.tp, shard)

    def _elements(self, rows: int, shard: Shard) -> int:
        return rows * (self.width // shard.tp_x) // shard.tp_z

    def forward(self, shard: Shard) -> list[Operation]:
        size, local = self._size(shard, shard.tokens // shard.tp_x), self._size(shard, shard.norm_tokens)
        operations = self._table(shard, "all_gather")
        operations.append(Operation(f"{self.name}.forward", MemoryBound("embedding", size, size)))
        if shard.tp > 1:
            # rows of other ranks are zeroed, then the partial results are summed
            operations.append(Operation(f"{self.name}.mask", MemoryBound("copy", 0.0, size)))
            op = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
            operations.append(Operation(f"{self.name}.{op}", Collective(op, "tp", size, shard.dtype)))
        for index, _ in enumerate(self.tables):
            operations.append(Operation(f"{self.name}.table_{index}", MemoryBound("add", 2 * local, local)))
        if self.dropout:
            what = MemoryBound("dropout", local, local + self._mask(shard))
            operations.append(Operation(f"{self.name}.dropout", what))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        size, local = self._size(shard, shard.tokens // shard.tp_x), self._size(shard, shard.norm_tokens)
        operations = []
        if self.dropout:
            what = MemoryBound("dropout_backward", local + self._mask(shard), local)
            operations.append(Operation(f"{self.name}.dropout_backward", what))
        if shard.tp > 1 and shard.sequence_parallel:
            gather = Collective("all_gather", "tp", size, shard.dtype)
            operations.append(Operation(f"{self.name}.gradient_gather", gather))
        # a dense gradient of the table is zeroed, then the rows met are added
        rows = self.parameters(shard).total * DTYPE_BYTES[shard.gradient_dtype]
        what = MemoryBound("embedding_backward", 2 * size, rows + size, kernels=2 + len(self.tables))
        operations.append(Operation(f"{self.name}.weight_gradient", what, weight_gradient=True))
        return [*operations, *self._table(shard, "reduce_scatter")]

    def _table(self, shard: Shard, op: str) -> list[Operation]:
        """On a tensor grid, Z shares out the table: gathered before use, its gradient scattered."""
        if shard.tp_z == 1:
            return []
        size = self.parameters(shard).total * shard.tp_z * shard.bytes
        return [Operation(f"{self.name}.{op}.table", Collective(op, "tp_z", size, shard.dtype))]

    def saved(self, shard: Shard) -> list[Saved]:
        return [Saved(f"{self.name}.mask", self._mask(shard))] if self.dropout else []

    def transient_bytes(self, shard: Shard) -> float:
        return 2 * self._size(shard, shard.tokens)

    def _size(self, shard: Shard, tokens: int) -> float:
        return tokens * self.width * shard.bytes

    def _mask(self, shard: Shard) -> float:
        return float(shard.norm_tokens * self.width)


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Module):
    """Softmax and loss over a vocabulary split by tp, in one of five ways.

    Over 16-bit logits: one kernel (fusion `cross_entropy`), or PyTorch's own operators (`narrow_log_softmax`), which
    make a tensor each. Or in fp32: compiled (`cross_entropy_fp32`, Megatron-Core's own fusion), with a copy of the
    logits and their exponentials; PyTorch's own operators (`log_softmax`); or else Megatron's, which work in place and
    reduce over tp (maximum, own logit, sum of exponentials, 4 bytes per token each; Shoeybi et al. 2019). With
    `whole_logits` the logits are gathered first, and each rank takes the loss of the whole vocabulary.
    """

    name: str
    source: str
    vocab: int
    group: str = ""

    def _elements(self, shard: Shard) -> float:
        ranks = 1 if shard.whole_logits else shard.tp
        return float(shard.tokens * (shard.padded_vocab(self.vocab) // ranks))

    def forward(self, shard: Shard) -> list[Operation]:
        return [*self._gather(shard), *self._loss(shard)]

    def _gather(self, shard: Shard) -> list[Operation]:
        """Logits of all ranks, laid side by side once they are here: the vocabulary is not the first dimension."""
        if shard.tp == 1 or not shard.whole_logits:
            return []
        size = self._elements(shard) * shard.bytes
        gather = Collective("all_gather", "tp", size, shard.dtype)
        join = MemoryBound("copy", size, size)
        return [Operation(f"{self.name}.gather", gather), Operation(f"{self.name}.join", join)]

    def _loss(self, shard: Shard) -> list[Operation]:
        elements, size = self._elements(shard), shard.bytes
        reduce = Collective("all_reduce", "tp", 4.0 * shard.tokens, "fp32")
        split = shard.tp > 1 and not shard.whole_logits
        if _form(shard) in ("cross_entropy", "cross_entropy_fp32"):
            what = MemoryBound("cross_entropy", 2 * elements * size, elements * size)
            if _form(shard) == "cross_entropy_fp32":
                what = MemoryBound(
                    "cross_entropy", elements * (size + 4.0), elements * (4.0 + 4.0), kernels=2
                )
            sums = [Operation(f"{self.name}.reduce", reduce)] * 2 if split else []
            return [Operation(f"{self.name}.forward", what), *sums]
        operations: list[Operation] = []
        for op, read, written, sums_up in _steps(shard):
            what = MemoryBound("cross_entropy", elements * read, elements * written)
            operations.append(Operation(f"{self.name}.{op}", what))
            if split and sums_up:
                operations.append(Operation(f"{self.name}.{op}.reduce", reduce))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        return [*self._gradient(shard), *self._metrics(shard)]

    def _gradient(self, shard: Shard) -> list[Operation]:
        elements, size = self._elements(shard), shard.bytes
        if _form(shard) == "cross_entropy":
            what = MemoryBound("cross_entropy_backward", elements * size, elements * size)
            return [Operation(f"{self.name}.backward", what)]
        if _form(shard) == "narrow_log_softmax":
            what = MemoryBound("cross_entropy_backward", 2 * elements * size, 2 * elements * size, kernels=2)
            return [Operation(f"{self.name}.backward", what)]
        read, written, kernels = (8.0, 8.0, 2) if _form(shard) == "log_softmax" else (4.0, 4.0, 1)
        gradient = MemoryBound("cross_entropy_backward", elements * read, elements * written, kernels)
        cast = MemoryBound("cast", elements * 4.0, elements * size)
        return [Operation(f"{self.name}.backward", gradient), Operation(f"{self.name}.cast_backward", cast)]

    def _metrics(self, shard: Shard) -> list[Operation]:
        """The same loss again by PyTorch's own operators: an fp32 copy of the logits and its log-softmax."""
        elements = self._elements(shard)
        what = MemoryBound("cross_entropy", elements * (shard.bytes + 4.0), elements * (4.0 + 4.0), kernels=3)
        return [Operation(f"{self.name}.metric_{index}", what) for index in range(shard.loss_metrics)]

    def saved(self, shard: Shard) -> list[Saved]:
        """The softmax, unless each piece of the loss runs backward at once."""
        if shard.loss_chunks > 1:
            return []
        return [Saved(f"{self.name}.softmax", self._elements(shard) * _kept_bytes(shard))]

    def transient_bytes(self, shard: Shard) -> float:
        """The logits, later their gradient, in the activation type, and what is not worked on in place.

        PyTorch's operators in fp32 make the gradients of loss and softmax (over tp also the exponentials), while the
        allocator holds on to the logits' block, too small for either.
        """
        working = shard.bytes + WORKING[_form(shard)]
        if _form(shard) == "log_softmax" and shard.tp > 1 and not shard.whole_logits:
            working += 4.0
        if shard.loss_chunks > 1:
            working += _kept_bytes(shard)
        return self._elements(shard) * working / shard.loss_chunks


WORKING = {
    "cross_entropy": 0.0,
    "cross_entropy_fp32": 4.0,
    "narrow_log_softmax": 4.0,
    "log_softmax": 8.0,
    "in_place": 0.0,
}
"""Bytes per logit besides the kept softmax and one tensor of the activation type, by how the loss is carried out."""


def _form(shard: Shard) -> str:
    return next((name for name in WORKING if shard.fused(name)), "in_place")


def _kept_bytes(shard: Shard) -> float:
    """Of the softmax, per logit."""
    return shard.bytes if _form(shard) in ("cross_entropy", "narrow_log_softmax") else 4.0


def _steps(shard: Shard) -> list[tuple[str, float, float, bool]]:
    """(operator, bytes read and written per logit, whether tp ranks add up) of the loss."""
    if _form(shard) == "narrow_log_softmax":
        return [("log_softmax", shard.bytes, shard.bytes, True)]
    if _form(shard) == "log_softmax":
        return [("cast", shard.bytes, 4.0, False), ("log_softmax", 4.0, 4.0, True)]
    return [
        ("cast", shard.bytes, 4.0, False),
        ("maximum", 4.0, 0.0, True),
        ("subtract", 4.0, 4.0, True),
        ("exponential", 4.0, 4.0, False),
        ("sum", 4.0, 0.0, True),
        ("divide", 4.0, 4.0, False),
    ]


def shareable(layer: Layer, shard: Shard) -> int:
    """Elements on each GPU of the vocabulary's table in a layer, which a head may share; none if it has none."""
    return sum(module.shareable(shard) for module in layer.modules if isinstance(module, Embedding))
