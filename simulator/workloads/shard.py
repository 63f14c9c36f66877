"""How one GPU sees a layer: degrees, batch, types, recomputation and fusions that decide its operations."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import Any

from simulator.workloads.operators import DTYPE_BYTES
from simulator.workloads.routing import EVEN, Routing

MEGATRON_FUSIONS = frozenset(
    {
        "qkv",
        "gate_up",
        "bias_gelu",
        "bias_dropout_add",
        "masked_softmax",
        "norm",
        "cast_transpose",
        "gradient_accumulation",
    }
)
"""Fused kernels of Megatron-LM's legacy path (2021-2022). `Shard` lists all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One GPU's share of the model and of the batch, and how the software fuses kernels.

    `fusions` names what runs as one kernel: qkv and gate_up (packed projections), bias (in the GEMM's epilogue),
    bias_gelu, bias_dropout_add, masked_softmax, norm, rope (scaled_rope: also where angles carry a factor), swiglu,
    cross_entropy (or _fp32), log_softmax (narrow_: of 16-bit logits), router, permute, grouped_gemm, weighed_bias and
    weighed_swiglu (backward of activations times gates, of experts), norm_cast (the norm writes its output narrow),
    narrow_softmax (of unfused attention, without a detour to fp32),
    cast_transpose (a cast by block writes rows and columns), narrow_gather (tp ranks gather fp8 operands as fp8),
    gradient_accumulation (the weight-gradient GEMM adds to the fp32 gradient). `attention` is unfused or the flash
    implementation (flash1, flash2, flash3, cudnn), which `unpads` its operands if it is called on sequences laid end
    to end. `recompute` is none, selective or full; selective reruns the
    modules whose group is in `recompute_groups`, full all of them, or those up to the last tensor that backward asks
    for (`recompute_stops_early`). `tp_overlap`: none, backward (collectives beside GEMMs of backward)
    or pipelined (GEMMs also cut into pieces). `dtensor`: tensor and context parallelism as PyTorch has them.
    `whole_logits`: the loss is taken of gathered logits.
    `separate_head`: the head is on another stage than the embedding, so
    that tied weights exist twice.

    `documents`: (tokens, how many) of the sequences that attention tells apart, where they are not one per sample.
    `unpadded`: the same of the documents themselves, where some of it is padding; of all tokens, theirs are the part
    `filled`.
    """

    micro_batch: int
    sequence_length: int
    tp: int = 1
    tp_x: int = 1  # with tp_z: tensor parallelism over a grid whose Y is tp (see modules.tensor_grid)
    tp_z: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int | None = None  # ranks that split one expert; tp if None
    routing: Routing = EVEN
    sparse: str = "dense"  # gradients of tables: dense | gathered | servers
    table_memory: str = "hbm"  # where tables that are dealt out rest: hbm | host | near_memory
    sequence_parallel: bool = False
    dtype: str = "bf16"  # of activations and of everything but the GEMMs of blocks
    gemm_dtype: str = "bf16"
    scaling: str = "delayed"  # of narrow GEMMs: delayed | current | row | block
    casts_weights: bool = False  # before every use, because they are gathered in the activation type
    attention: str = "flash2"
    gated_input_dtype: str = (
        ""  # in which inputs of fused gated activations are kept; that of activations if ""
    )
    unpads: bool = False
    recompute: str = "none"
    recompute_groups: frozenset[str] = frozenset({"core_attention"})
    recompute_stops_early: bool = False
    fusions: frozenset[str] = MEGATRON_FUSIONS
    shared_beside: bool = False  # the shared expert of a mixture computes while tokens travel to the others
    graphs: frozenset[str] = frozenset()  # parts of layers replayed from CUDA graphs (see workloads.graphs)
    tp_overlap: str = "backward"
    dtensor: bool = False
    whole_logits: bool = False
    context_exchange: str = "ring"  # ring | all_gather | all_to_all | usp
    context_layout: str = "zigzag"  # zigzag | contiguous
    ulysses_ranks: int = 1  # under usp, ranks that exchange heads for tokens
    ring_steps: int | None = (
        None  # how many of a ring's steps are listed; all, which between the ends are equal
    )
    gradient_dtype: str = "fp32"
    accumulate_gradients: bool = True
    vocab_multiple: int = 128
    separate_head: bool = False
    loss_chunks: int = (
        1  # pieces of the tokens whose logits and loss run forward and backward one after the other
    )
    loss_metrics: int = 0  # cross entropies besides the loss, of the same logits
    offloaded: float = 0.0  # part of what blocks keep for backward that waits in host memory
    documents: tuple[tuple[int, int], ...] = ()
    unpadded: tuple[tuple[int, int], ...] = ()
    filled: float = 1.0
    context_axis: str = "cp"  # of the groups that share documents
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(VALUES(self)))  # caches ask for it again and again

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(zip(NAMES, VALUES(self), strict=True)),)  # hashes differ by process

    def at_length(self, length: int | None) -> Shard:
        """The same with samples of so many positions, all of one document; as it is if None."""
        return self if length is None else _at_length(self, length)

    def widened(self) -> Shard:
        """The same with products in the activation type."""
        return _widened(self)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on this GPU outside the sequence-parallel regions."""
        return self.micro_batch * self.sequence_length // self.cp

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """(tokens, how many) of each length that attention meets."""
        return self.documents or ((self.sequence_length, self.micro_batch),)

    @property
    def norm_tokens(self) -> int:
        """Tokens of a micro-batch in norm, dropout and residual: divided by tp under sequence parallelism.

        On a tensor grid, where X splits the width of these tensors, as many whole tokens as that makes.
        """
        return self.tokens // self.tp if self.sequence_parallel else self.tokens // self.tp_x

    @property
    def on_grid(self) -> bool:
        """Whether tensor parallelism has more than one dimension."""
        return self.tp_x * self.tp_z > 1

    @property
    def ulysses(self) -> int:
        """Ranks that exchange heads for tokens; the cp / ulysses groups of them form rings."""
        return {"usp": self.ulysses_ranks, "all_to_all": self.cp}.get(self.context_exchange, 1)

    @property
    def etp(self) -> int:
        """Ranks that split one expert."""
        return self.tp if self.expert_tp is None else self.expert_tp

    @property
    def bytes(self) -> float:
        """Bytes of one activation element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def narrow_gated_input(self) -> float | None:
        """Bytes of one kept element of a fused gated activation's input, where that is cast to be kept."""
        kept = DTYPE_BYTES[self.gated_input_dtype or self.dtype]
        return kept if self.fused("swiglu") and kept < self.bytes else None

    @property
    def product_dtype(self) -> str:
        """In which GEMMs outside blocks compute: the activations', but TF32 replaces fp32 in every product."""
        return self.gemm_dtype if self.gemm_dtype == "tf32" else self.dtype

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


def _restored(values: dict[str, Any]) -> Shard:
    return Shard(**values)


NAMES = [one.name for one in fields(Shard) if one.init]
VALUES = attrgetter(*NAMES)


@lru_cache(maxsize=256)
def _widened(shard: Shard) -> Shard:
    return replace(shard, gemm_dtype=shard.dtype)


@lru_cache(maxsize=256)
def _at_length(shard: Shard, length: int) -> Shard:
    return replace(shard, sequence_length=length, documents=(), unpadded=(), filled=1.0)
