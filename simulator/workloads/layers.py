"""What a layer of a model makes one GPU do: operations in order, parameters, activations kept for backward.

A model is a sequence of layers (embedding, blocks, head); a layer is a chain of modules (linear, norm,
attention, ...). A module says, for a given `Shard`, which operations it runs forward and backward, how many
parameters it holds and which tensors it keeps. Everything here is per GPU and per micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from simulator.workloads.operators import DTYPE_BYTES, Attention, Collective, GroupedGemm, Kernel, MemoryBound

MEGATRON_FUSIONS = frozenset(
    {"qkv", "gate_up", "bias_gelu", "bias_dropout_add", "masked_softmax", "norm", "gradient_accumulation"}
)
"""Fused kernels of Megatron-LM's legacy path (2021-2022). The full list: docs of `Shard.fusions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """How one GPU sees a layer: its share of the model and of the batch, and how kernels are fused.

    `fusions` names what the software runs as one kernel: qkv and gate_up (packed projections), bias (added in
    the GEMM's epilogue), bias_gelu, bias_dropout_add, masked_softmax, norm, rope, swiglu, cross_entropy,
    gradient_accumulation (weight-gradient GEMM adds to the fp32 gradient), residual_norm (residual add +
    norm). `attention` is "unfused" or the flash implementation (flash1, flash2, flash3, cudnn). `recompute`
    is none, selective or full; selective reruns the modules whose group is in `recompute_groups`.
    """

    micro_batch: int
    sequence_length: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    dtype: str = "bf16"  # of activations and of everything but the GEMMs of blocks
    gemm_dtype: str = "bf16"
    attention: str = "flash2"
    recompute: str = "none"
    recompute_groups: frozenset[str] = frozenset({"core_attention"})
    fusions: frozenset[str] = MEGATRON_FUSIONS
    tp_overlap: str = "backward"  # none | backward (collective beside a GEMM) | pipelined (split GEMM)
    context_exchange: str = "ring"  # ring | all_gather | all_to_all
    gradient_dtype: str = "fp32"
    accumulate_gradients: bool = True
    vocab_multiple: int = 128
    separate_head: bool = (
        False  # the head is on another pipeline stage than the embedding: tied weights twice
    )
    sharded_weights: bool = (
        False  # FSDP / ZeRO-3: parameters come from a gather (informs nothing here but labels)
    )

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on this GPU outside the sequence-parallel regions."""
        return self.micro_batch * self.sequence_length // self.cp

    @property
    def norm_tokens(self) -> int:
        """Tokens of a micro-batch in norm, dropout and residual: divided by tp under sequence parallelism."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens

    @property
    def bytes(self) -> float:
        """Bytes of one activation element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def low_precision(self) -> bool:
        """Whether block GEMMs run in a narrower type than the activations, so that casts are needed."""
        return DTYPE_BYTES[self.gemm_dtype] < self.bytes

    def padded_vocab(self, vocab: int) -> int:
        """Megatron pads the vocabulary to a multiple of `vocab_multiple` x tp."""
        multiple = self.vocab_multiple * self.tp
        return ceil(vocab / multiple) * multiple

    def fused(self, what: str) -> bool:
        return what in self.fusions


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of parameters: weight matrices, embeddings, vectors (norms and biases), and expert matrices.

    Experts stand apart because their gradients are reduced over another group (ranks that hold the same
    experts).
    """

    matrices: int = 0
    embeddings: int = 0
    vectors: int = 0
    experts: int = 0

    @property
    def total(self) -> int:
        return self.matrices + self.embeddings + self.vectors + self.experts

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(
            self.matrices + other.matrices,
            self.embeddings + other.embeddings,
            self.vectors + other.vectors,
            self.experts + other.experts,
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel or collective of a layer, in the order in which the host issues it.

    Kernels run in order. A collective starts when the kernels before it have ended, in order with the other
    collectives of its axis. A kernel waits for every earlier collective that is not `asynchronous`, and for
    the asynchronous ones named in `waits_for`; what is still outstanding is awaited where the list ends.
    `weight_gradient` marks what a zero-bubble schedule may postpone. `useful` is the part of the FLOPs that
    the model asks for (less than 1 for a padded vocabulary or work replicated over tp).
    """

    label: str
    what: Kernel | Collective
    weight_gradient: bool = False
    asynchronous: bool = False
    waits_for: tuple[str, ...] = ()
    useful: float = 1.0

    @property
    def is_collective(self) -> bool:
        return isinstance(self.what, Collective)

    @property
    def executed_flops(self) -> float:
        """Matrix FLOPs that the GPU carries out (causal flash halved, its backward x2.5)."""
        what = self.what
        return 0.0 if isinstance(what, Collective | MemoryBound) else what.flops

    @property
    def hbm_bytes(self) -> float:
        """Least bytes that the kernel moves to and from memory: every operand once."""
        what = self.what
        if isinstance(what, Collective):
            return 0.0
        if isinstance(what, MemoryBound):
            return what.bytes_read + what.bytes_written
        size = DTYPE_BYTES[what.dtype]
        if isinstance(what, Attention):
            queries = what.batch * what.heads * what.seq_q * (what.head_dim + what.head_dim_v)
            keys = what.batch * what.kv_heads * what.seq_kv * (what.head_dim + what.head_dim_v)
            return size * (queries + keys) * (2.0 if what.backward else 1.0)
        weights = what.groups if isinstance(what, GroupedGemm) else what.batch
        rows = what.m if isinstance(what, GroupedGemm) else what.m * what.batch
        return size * (rows * (what.k + what.n) + weights * what.k * what.n)

    @property
    def model_flops(self) -> float:
        """FLOPs by the model's count: full (not causal) attention, backward twice forward, no padding."""
        what = self.what
        if isinstance(what, Collective | MemoryBound):
            return 0.0
        if isinstance(what, Attention):
            dense = (
                2.0 * what.batch * what.heads * what.seq_q * what.seq_kv * (what.head_dim + what.head_dim_v)
            )
            return self.useful * dense * (2.0 if what.backward else 1.0)
        if isinstance(what, GroupedGemm):
            return self.useful * what.flops
        return self.useful * what.flops


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor kept from forward to backward. Two modules that keep the same `tensor` share its bytes."""

    tensor: str
    size: float


class Module:
    """One building block of a layer; subclasses are frozen dataclasses with the fields `name` and `source`.

    `name` is also the name of the output tensor and `source` that of the input; tensors private to the module
    are called `name.something`. `group` is what `Shard.recompute_groups` refers to ("" = never on its own).
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

    def saved(self, shard: Shard) -> list[Saved]:
        """Tensors kept for backward when nothing is recomputed."""
        return []

    def transient_bytes(self, shard: Shard) -> float:
        """Working memory at the module's own peak: gradients in flight, gathered input."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """A chain of modules. `kind` is embedding, block or head; only blocks are recomputed.

    `width` is the number of elements per token that enter (0 for the embedding) and `out_width` that leave.
    """

    name: str
    kind: str
    modules: tuple[Module, ...]
    width: int
    out_width: int

    def parameters(self, shard: Shard) -> Parameters:
        """Parameters on one GPU, after tensor (and expert) parallelism, before any ZeRO sharding."""
        return sum((module.parameters(shard) for module in self.modules), Parameters())

    def forward(self, shard: Shard) -> tuple[Operation, ...]:
        return _forward(self, shard)

    def backward(self, shard: Shard) -> tuple[Operation, ...]:
        """Input- and weight-gradient operations, without recomputation."""
        return _backward(self, shard)

    def recompute(self, shard: Shard) -> tuple[Operation, ...]:
        """What is run again before backward, by `shard.recompute`."""
        if self.kind != "block" or shard.recompute == "none":
            return ()
        if shard.recompute == "full":
            return self.forward(shard)
        return _joined(module.forward(shard) for module in self.modules if _is_recomputed(module, shard))

    def activation_bytes(self, shard: Shard) -> float:
        """Bytes kept from forward to backward for one micro-batch (Korthikanti et al. 2022, section 4)."""
        if self.kind == "block" and shard.recompute == "full":
            return self.input_bytes(shard)
        return sum(self.kept_tensors(shard).values())

    def kept_tensors(self, shard: Shard) -> dict[str, float]:
        """Bytes of each tensor kept, by name; full recompute is ignored here."""
        selective = self.kind == "block" and shard.recompute == "selective"
        redone = [module for module in self.modules if selective and _is_recomputed(module, shard)]
        dropped = {module.name for module in redone if not module.keeps_output}
        private = tuple(f"{module.name}." for module in redone)
        kept: dict[str, float] = {}
        for module in self.modules:
            for saved in module.saved(shard):
                if saved.tensor not in dropped and not saved.tensor.startswith(private):
                    kept[saved.tensor] = max(saved.size, kept.get(saved.tensor, 0.0))
        return kept

    def transient_bytes(self, shard: Shard) -> float:
        """What lives only while this layer runs backward: recomputed tensors, gradients in flight."""
        working = max((module.transient_bytes(shard) for module in self.modules), default=0.0)
        everything = sum(self.kept_tensors(replace(shard, recompute="none")).values())
        return working + max(0.0, everything - self.activation_bytes(shard))

    def input_bytes(self, shard: Shard) -> float:
        """Bytes of the tensor that enters (what a pipeline stage receives), per GPU."""
        return shard.norm_tokens * self.width * shard.bytes

    def output_bytes(self, shard: Shard) -> float:
        """Bytes of the tensor that leaves (what a pipeline stage sends), per GPU."""
        return shard.norm_tokens * self.out_width * shard.bytes


def _is_recomputed(module: Module, shard: Shard) -> bool:
    return module.group != "" and module.group in shard.recompute_groups


@lru_cache(maxsize=1024)
def _forward(layer: Layer, shard: Shard) -> tuple[Operation, ...]:
    return _joined(module.forward(shard) for module in layer.modules)


@lru_cache(maxsize=1024)
def _backward(layer: Layer, shard: Shard) -> tuple[Operation, ...]:
    return _joined(module.backward(shard) for module in reversed(layer.modules))


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
