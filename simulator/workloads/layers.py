"""What a layer of a model makes one GPU do: operations in order, parameters, activations kept for backward.

A model is a sequence of layers (embedding, blocks, head); a layer is a chain of modules (linear, norm,
attention, ...). A module says, for a given `Shard`, which operations it runs forward and backward, how many
parameters it holds and which tensors it keeps. Everything here is per GPU and per micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from simulator.workloads.graphs import captured
from simulator.workloads.operation import Operation
from simulator.workloads.operators import DTYPE_BYTES, Gemm
from simulator.workloads.prefetch import prefetched
from simulator.workloads.shard import MEGATRON_FUSIONS, Shard
from simulator.workloads.shared_expert import BEHIND, BEHIND_BACKWARD, beside_exchanges

RECOMPUTED = ("block", "prediction")
"""Kinds of layers to which recomputation applies."""

__all__ = ["MEGATRON_FUSIONS", "Layer", "Module", "Operation", "Parameters", "Saved", "Shard"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of parameters: weight matrices, embeddings, vectors (norms and biases), and expert matrices.

    Experts stand apart because their gradients are reduced over another group (ranks that hold the same
    experts). `tables` are parameters of which a step meets a few rows, and whose gradients are those rows: they are not
    in the total, of which everything is read, summed and updated.
    """

    matrices: int = 0
    embeddings: int = 0
    vectors: int = 0
    experts: int = 0
    tables: int = 0

    @property
    def total(self) -> int:
        return self.matrices + self.embeddings + self.vectors + self.experts

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.matrices + other.matrices,
            self.embeddings + other.embeddings,
            self.vectors + other.vectors,
            self.experts + other.experts,
            self.tables + other.tables,
        )


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor kept from forward to backward. Two modules that keep the same `tensor` share its bytes."""

    tensor: str
    size: float


class Module:
    """One building block of a layer; subclasses are frozen dataclasses with the fields `name` and `source`.

    `name` is also the name of the output tensor and `source` that of the input; tensors private to the module
    are called `name.something`. `group` is what `Shard.recompute_groups` refers to ("" = never on its own; several
    names are set apart by blanks); a group `a.b` belongs to the group `a`.
    `keeps_output`: when recomputed selectively, its output stays because a later module keeps it (as with a
    checkpoint around core attention); otherwise the output is dropped too.
    """

    name: str
    source: str
    group: str = ""
    keeps_output: bool = False

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters()

    def forward(self, shard: Shard) -> list[Operation]:
        raise NotImplementedError

    def backward(self, shard: Shard) -> list[Operation]:
        raise NotImplementedError

    def recomputed(self, shard: Shard) -> list[Operation]:
        """What selective recomputation runs again of this module."""
        return self.forward(shard)

    def saved(self, shard: Shard) -> list[Saved]:
        """Tensors kept for backward when nothing is recomputed."""
        return []

    def kept_of_recomputed(self, shard: Shard) -> list[Saved]:
        """Tensors kept although the module is recomputed: results of which only a part is run again."""
        return []

    def touched_bytes(self, shard: Shard, passes: float) -> float:
        """Gradients, with their numbers, of the rows of its tables that so many micro-batches meet, each row once."""
        return 0.0

    def transient_bytes(self, shard: Shard) -> float:
        """Working memory at the module's own peak: gradients in flight, gathered input."""
        return 0.0

    def filled(self, shard: Shard) -> float:
        """The part of its work that is not spent on padding."""
        return shard.filled


@dataclass(frozen=True, slots=True)
class Layer:
    """A chain of modules. `kind` is embedding, block, head or prediction (a block behind the head).

    Only blocks and predictions are recomputed.

    `width` is the number of elements per token that enter (0 for the embedding) and `out_width` that leave. Layers may
    have a `length` of their own (positions per sample; the sequence's if None); `carried` elements per sample go past
    the layer, for those after it (what an encoder hands to decoders). Products of `wide` layers run in the activation
    type, whatever the others do.
    """

    name: str
    kind: str
    modules: tuple[Module, ...]
    width: int
    out_width: int
    length: int | None = None
    carried: int = 0
    wide: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Caches ask for it hundreds of thousands of times in a search.
        object.__setattr__(self, "_hash", hash(self._fields()))

    def _fields(self) -> tuple[object, ...]:
        shape = self.width, self.out_width, self.length, self.carried, self.wide
        return self.name, self.kind, self.modules, *shape

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Layer], tuple[object, ...]]:
        return Layer, self._fields()  # hashes differ by process

    def _seen(self, shard: Shard) -> Shard:
        own = shard.at_length(self.length)
        return own.widened() if self.wide else own

    def parameters(self, shard: Shard) -> Parameters:
        """Parameters on one GPU, after tensor (and expert) parallelism, before any ZeRO sharding."""
        return _parameters(self, self._seen(shard))

    def forward(self, shard: Shard) -> tuple[Operation, ...]:
        return _forward(self, self._seen(shard))

    def backward(self, shard: Shard) -> tuple[Operation, ...]:
        """Input- and weight-gradient operations, without recomputation."""
        return _backward(self, self._seen(shard))

    def input_gradient(self, shard: Shard) -> tuple[Operation, ...]:
        """The part of backward that the layer before waits for (without recomputation)."""
        return _split_backward(self, self._seen(shard))[0]

    def weight_gradient(self, shard: Shard) -> tuple[Operation, ...]:
        """The part of backward that may be put off: weight gradients, and the collectives that only they wait for."""
        return _split_backward(self, self._seen(shard))[1]

    def postponed_bytes(self, shard: Shard) -> float:
        """Bytes that stay from the input gradient until the weight gradients: inputs and output gradients of GEMMs."""
        return _postponed_bytes(self, self._seen(shard))

    def recompute(self, shard: Shard) -> tuple[Operation, ...]:
        """What is run again before backward, by `shard.recompute`."""
        if self.kind not in RECOMPUTED or shard.recompute == "none":
            return ()
        return _recompute(self, self._seen(shard))

    def activation_bytes(self, shard: Shard) -> float:
        """Bytes kept on the GPU from forward to backward for one micro-batch (Korthikanti et al. 2022, section 4)."""
        return _activation_bytes(self, self._seen(shard)) - self.offloaded_bytes(shard)

    def offloaded_bytes(self, shard: Shard) -> float:
        """Bytes kept in host memory meanwhile."""
        if self.kind not in RECOMPUTED or not shard.offloaded:
            return 0.0
        return shard.offloaded * _activation_bytes(self, self._seen(shard))

    def touched_bytes(self, shard: Shard, passes: float) -> float:
        """Gradients, with their numbers, of the rows of its tables that so many micro-batches meet, each row once."""
        own = self._seen(shard)
        return sum(module.touched_bytes(own, passes) for module in self.modules)

    def kept_tensors(self, shard: Shard) -> dict[str, float]:
        """Bytes of each tensor kept, by name; full recompute is ignored here."""
        shard = self._seen(shard)
        selective = self.kind in RECOMPUTED and shard.recompute == "selective"
        redone = [module for module in self.modules if selective and _is_recomputed(module, shard)]
        dropped = {module.name for module in redone if not module.keeps_output}
        private = tuple(f"{module.name}." for module in redone)
        kept = {saved.tensor: saved.size for module in redone for saved in module.kept_of_recomputed(shard)}
        for module in self.modules:
            for saved in module.saved(shard):
                own = module in redone and saved.tensor == module.name  # there if a later module keeps it
                if saved.tensor not in dropped and not saved.tensor.startswith(private) and not own:
                    kept[saved.tensor] = max(saved.size, kept.get(saved.tensor, 0.0))
        return kept

    def transient_bytes(self, shard: Shard) -> float:
        """What lives only while this layer runs backward: recomputed tensors, gradients in flight."""
        return _transient_bytes(self, self._seen(shard))

    def input_bytes(self, shard: Shard) -> float:
        """Bytes of the tensor that enters (what a pipeline stage receives), per GPU."""
        return self._seen(shard).norm_tokens * self.width * shard.bytes

    def output_bytes(self, shard: Shard) -> float:
        """Bytes of the tensors that leave (what a pipeline stage sends), per GPU."""
        carried = shard.micro_batch * self.carried // (shard.tp if shard.sequence_parallel else 1)
        return (self._seen(shard).norm_tokens * self.out_width + carried) * shard.bytes


@lru_cache(maxsize=64)
def with_wide_ends(layers: tuple[Layer, ...], first: int, last: int) -> tuple[Layer, ...]:
    """The same layers with so many blocks at the beginning and at the end `wide`; equal ones stay one object."""
    blocks = [place for place, layer in enumerate(layers) if layer.kind == "block"]
    ends = {*blocks[:first], *blocks[len(blocks) - last :]}
    wide = {layer: replace(layer, wide=True) for layer in {layers[place] for place in ends}}
    return tuple(wide[layer] if place in ends else layer for place, layer in enumerate(layers))


def _up_to_last_kept(layer: Layer, shard: Shard) -> tuple[Module, ...]:
    """The modules up to the last one that makes a tensor which backward asks for."""
    kept = {saved.tensor for module in layer.modules for saved in module.saved(shard)}
    made = [
        any(tensor == module.name or tensor.startswith(f"{module.name}.") for tensor in kept)
        for module in layer.modules
    ]
    return layer.modules[: max((place for place, makes in enumerate(made, start=1) if makes), default=0)]


def _is_recomputed(module: Module, shard: Shard) -> bool:
    return not shard.recompute_groups.isdisjoint(enclosing(module.group))


def enclosing(group: str) -> list[str]:
    """The group and those that contain it: `a.b` -> [`a`, `a.b`]; of each where there are several (`a.b c`)."""
    found = []
    for one in group.split():
        parts = one.split(".")
        found += [".".join(parts[: end + 1]) for end in range(len(parts))]
    return found


# The answers depend on layer and shard alone, and a pipeline asks for equal blocks again and again.


@lru_cache(maxsize=1024)
def _parameters(layer: Layer, shard: Shard) -> Parameters:
    return sum((module.parameters(shard) for module in layer.modules), Parameters())


@lru_cache(maxsize=1024)
def _activation_bytes(layer: Layer, shard: Shard) -> float:
    if layer.kind in RECOMPUTED and shard.recompute == "full":
        return layer.input_bytes(shard)
    return sum(layer.kept_tensors(shard).values())


@lru_cache(maxsize=1024)
def _transient_bytes(layer: Layer, shard: Shard) -> float:
    working = max((module.transient_bytes(shard) for module in layer.modules), default=0.0)
    everything = sum(layer.kept_tensors(replace(shard, recompute="none")).values())
    return working + max(0.0, everything - _activation_bytes(layer, shard))


@lru_cache(maxsize=1024)
def _forward(layer: Layer, shard: Shard) -> tuple[Operation, ...]:
    operations = _joined(_issued(layer, shard, layer.modules, lambda module: module.forward(shard)))
    return prefetched(beside_exchanges(operations, BEHIND) if shard.shared_beside else operations)


@lru_cache(maxsize=1024)
def _recompute(layer: Layer, shard: Shard) -> tuple[Operation, ...]:
    if shard.recompute == "full":
        again = layer.modules if not shard.recompute_stops_early else _up_to_last_kept(layer, shard)
        return _forward(replace(layer, modules=again), shard)
    redone = [module for module in layer.modules if _is_recomputed(module, shard)]
    return _joined(_issued(layer, shard, redone, lambda module: module.recomputed(shard)))


@lru_cache(maxsize=1024)
def _backward(layer: Layer, shard: Shard) -> tuple[Operation, ...]:
    backwards = layer.modules[::-1]
    operations = _joined(_issued(layer, shard, backwards, lambda module: module.backward(shard)))
    return prefetched(beside_exchanges(operations, BEHIND_BACKWARD) if shard.shared_beside else operations)


@lru_cache(maxsize=1024)
def _split_backward(layer: Layer, shard: Shard) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    operations = layer.backward(shard)
    awaited = {label for op in operations if not op.weight_gradient for label in op.waits_for}
    late = {label for op in operations if op.weight_gradient for label in op.waits_for} - awaited
    moved = [op.weight_gradient or (op.is_collective and op.label in late) for op in operations]
    first = tuple(op for op, later in zip(operations, moved, strict=True) if not later)
    return first, tuple(op for op, later in zip(operations, moved, strict=True) if later)


@lru_cache(maxsize=1024)
def _postponed_bytes(layer: Layer, shard: Shard) -> float:
    kept: dict[str, float] = {}
    for module in layer.modules:
        gemms = [op.what for op in module.backward(shard) if op.weight_gradient and isinstance(op.what, Gemm)]
        if not gemms:
            continue
        inputs = [saved for saved in module.saved(shard) if saved.tensor == module.source]
        kept |= {saved.tensor: max(saved.size, kept.get(saved.tensor, 0.0)) for saved in inputs}
        # A weight gradient [outputs, inputs] sums over k tokens: m x k elements of output gradient.
        kept[f"{module.name}.output_gradient"] = sum(
            g.batch * g.m * g.k * DTYPE_BYTES[g.dtype] for g in gemms
        )
    return sum(kept.values())


def _issued(
    layer: Layer, shard: Shard, modules: Iterable[Module], work: Callable[[Module], list[Operation]]
) -> Iterator[list[Operation]]:
    """The operations of each module as the host launches them, which know how much of them is padding."""
    graphed = captured([module.name for module in layer.modules], shard.graphs)
    for module in modules:
        operations, filled = work(module), module.filled(shard)
        if filled != 1.0:
            operations = [replace(operation, filled=filled) for operation in operations]
        if module.name in graphed:
            yield [replace(operation, graphed=True) for operation in operations]
        elif operations:
            yield [replace(operations[0], calls=1), *operations[1:]]


def _joined(parts: Iterable[list[Operation]]) -> tuple[Operation, ...]:
    """One list; a module's open collectives are awaited by the next kernel that is no weight gradient."""
    return tuple(_with_waits(parts))


def _with_waits(parts: Iterable[list[Operation]]) -> Iterator[Operation]:
    pending: tuple[str, ...] = ()
    for operations in parts:
        awaited: set[str] = set()
        opened: list[str] = []
        for operation in operations:
            if pending and not operation.is_collective and not operation.weight_gradient:
                operation = replace(operation, waits_for=pending + operation.waits_for)
                pending = ()
            awaited.update(operation.waits_for)
            if operation.asynchronous and operation.is_collective:
                opened.append(operation.label)
            yield operation
        pending += tuple(label for label in opened if label not in awaited)
