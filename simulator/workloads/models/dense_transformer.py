"""What the layers of a dense transformer are: GPT (and MPT, BLOOM), Llama, BERT."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES, Faults, Model
from simulator.workloads.modules.attention import CoreAttention
from simulator.workloads.modules.elementwise import Activation, GatedActivation, Residual, Rotary
from simulator.workloads.modules.linear import ColumnLinear, ReplicatedLinear, RowLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import CrossEntropy, Embedding


class Transformer(Model):
    """Shapes that all dense transformers share."""

    num_layers: int = Field(alias="layers", gt=0, description="Number of blocks.")
    hidden: int = Field(gt=0, description="Width of the residual stream.")
    heads: int = Field(gt=0, description="Attention (query) heads.")
    kv_heads: int | None = Field(
        default=None, gt=0, description="Key and value heads; as many as heads if left out."
    )
    head_dim: int | None = Field(
        default=None, gt=0, description="Width of a head; hidden / heads if left out."
    )
    ffn: int | None = Field(
        default=None, gt=0, description="Width of the feed-forward layer; 4 x hidden if left out."
    )
    vocab: int = Field(gt=0, description="Entries of the vocabulary, before padding.")
    max_sequence: int = Field(gt=0, description="Longest sequence (rows of a learned position table).")

    @property
    def num_kv_heads(self) -> int:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def width_per_head(self) -> int:
        return self.hidden // self.heads if self.head_dim is None else self.head_dim

    @property
    def ffn_width(self) -> int:
        return 4 * self.hidden if self.ffn is None else self.ffn

    @property
    def num_blocks(self) -> int:
        return self.num_layers

    def faults(self) -> Faults:
        found = []
        if self.head_dim is None and self.hidden % self.heads:
            found.append(("heads", f"{self.heads} heads do not divide hidden {self.hidden}; give head_dim"))
        if self.heads % self.num_kv_heads:
            found.append(("kv_heads", f"{self.num_kv_heads} does not divide {self.heads} heads"))
        return found

    def sharding_faults(self, tp: int, cp: int, ep: int) -> Faults:
        found: Faults = []
        if self.heads % tp:
            found.append(("tp", f"{tp} does not divide {self.heads} attention heads{divisors(self.heads)}"))
        elif self.num_kv_heads % tp:
            count = self.num_kv_heads
            found.append(("tp", f"{tp} does not divide {count} key-value heads{divisors(count)}"))
        if self.ffn_width % tp:
            found.append(("tp", f"{tp} does not divide ffn {self.ffn_width}"))
        if ep > 1:
            found.append(("ep", f"ep {ep} needs a model with experts; {self.name or 'this model'} has none"))
        return found

    def _qkv_parts(self) -> tuple[int, ...]:
        kv = self.num_kv_heads * self.width_per_head
        return (self.heads * self.width_per_head, kv, kv)

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        return (self._embedding(), *[self._block()] * self.num_layers, self._head())

    def _embedding(self) -> Layer:
        raise NotImplementedError

    def _block(self) -> Layer:
        raise NotImplementedError

    def _head(self) -> Layer:
        raise NotImplementedError

    def _core(self, source: str, causal: bool, dropout: bool, window: int | None = None) -> CoreAttention:
        width = self.width_per_head
        return CoreAttention(
            name="core_attention",
            source=source,
            heads=self.heads,
            kv_heads=self.num_kv_heads,
            head_dim=width,
            head_dim_v=width,
            causal=causal,
            dropout=dropout,
            window=window,
        )


@FAMILIES.register("gpt")
class GPT(Transformer):
    """GPT and its relatives (MPT, BLOOM): LayerNorm before each branch, GELU, tied embedding."""

    family: Literal["gpt"] = Field(default="gpt", description="Always `gpt`.")
    positions: Literal["learned", "alibi", "rope", "none"] = Field(
        default="learned",
        description="How positions enter: a learned table, a bias on scores, rotation, or not at all.",
    )
    biases: bool = Field(default=True, description="Whether projections and norms have biases.")
    dropout: bool = Field(
        default=True, description="Whether there is dropout (embedding, attention, residual)."
    )
    tied_embeddings: bool = Field(default=True, description="Whether the head reuses the embedding's table.")
    embedding_norm: bool = Field(default=False, description="Whether a norm follows the embedding (BLOOM).")

    @property
    def tied(self) -> bool:
        return self.tied_embeddings

    @property
    def longest_sequence(self) -> int | None:
        return self.max_sequence if self.positions == "learned" else None

    def _norm(self, name: str, source: str, residual: bool = True) -> Norm:
        return Norm(name=name, source=source, width=self.hidden, bias=self.biases, residual=residual)

    def _embedding(self) -> Layer:
        tables = (self.max_sequence,) if self.positions == "learned" else ()
        modules: list[Module] = [
            Embedding(
                name="embedding", width=self.hidden, vocab=self.vocab, tables=tables, dropout=self.dropout
            )
        ]
        if self.embedding_norm:
            modules.append(self._norm("embedding_norm", "embedding", residual=False))
        return Layer("embedding", "embedding", tuple(modules), 0, self.hidden)

    def _block(self) -> Layer:
        parts, hidden, biases = self._qkv_parts(), self.hidden, self.biases
        attended, queries = "qkv", parts[0] + parts[1]
        modules: list[Module] = [
            self._norm("norm_1", "input"),
            ColumnLinear(name="qkv", source="norm_1", inputs=hidden, parts=parts, bias=biases, packed="qkv"),
        ]
        if self.positions == "rope":
            modules.append(Rotary(name="rotary", source="qkv", width=queries))
            attended = "rotary"
        modules += [
            self._core(attended, causal=True, dropout=self.dropout),
            RowLinear(
                name="projection", source="core_attention", inputs=parts[0], outputs=hidden, bias=biases
            ),
            Residual(name="residual_1", source="projection", width=hidden, bias=biases, dropout=self.dropout),
            self._norm("norm_2", "residual_1"),
            *mlp("norm_2", hidden, self.ffn_width, biases),
            Residual(name="residual_2", source="fc2", width=hidden, bias=biases, dropout=self.dropout),
        ]
        return Layer("block", "block", tuple(modules), hidden, hidden)

    def _head(self) -> Layer:
        modules = (
            self._norm("final_norm", "input", residual=False),
            vocabulary_projection("final_norm", self.hidden, self.vocab, owner=not self.tied_embeddings),
            CrossEntropy(name="loss", source="logits", vocab=self.vocab),
        )
        return Layer("head", "head", modules, self.hidden, 0)


@FAMILIES.register("llama")
class Llama(Transformer):
    """Llama 1-3, Mistral, Qwen: RMSNorm, rotary positions, SwiGLU, grouped queries, no biases, no dropout."""

    family: Literal["llama"] = Field(default="llama", description="Always `llama`.")
    ffn: int = Field(gt=0, description="Width of the gated feed-forward layer.")
    tied_embeddings: bool = Field(default=False, description="Whether the head reuses the embedding's table.")
    sliding_window: int | None = Field(
        default=None, gt=0, description="Keys that a query sees; all if left out."
    )
    qk_norm: bool = Field(
        default=False, description="Whether queries and keys are normalised per head (Qwen 3)."
    )
    qkv_bias: bool = Field(
        default=False, description="Whether the query-key-value projection has a bias (Qwen 2)."
    )

    @property
    def tied(self) -> bool:
        return self.tied_embeddings

    def _norm(self, name: str, source: str, residual: bool = True) -> Norm:
        return Norm(name=name, source=source, width=self.hidden, kind="rms", bias=False, residual=residual)

    def _embedding(self) -> Layer:
        table = Embedding(name="embedding", width=self.hidden, vocab=self.vocab, dropout=False)
        return Layer("embedding", "embedding", (table,), 0, self.hidden)

    def _block(self) -> Layer:
        return Layer("block", "block", (*self._attention(), *self._mlp()), self.hidden, self.hidden)

    def _attention(self) -> list[Module]:
        parts, hidden = self._qkv_parts(), self.hidden
        modules: list[Module] = [
            self._norm("norm_1", "input"),
            ColumnLinear(
                name="qkv", source="norm_1", inputs=hidden, parts=parts, bias=self.qkv_bias, packed="qkv"
            ),
        ]
        if self.qk_norm:
            for name, heads in (("query_norm", self.heads), ("key_norm", self.num_kv_heads)):
                width = self.width_per_head
                modules.append(
                    Norm(
                        name=name,
                        source=f"{name}.input",
                        width=width,
                        kind="rms",
                        residual=False,
                        heads=heads,
                        group="",
                    )
                )
        return [
            *modules,
            Rotary(name="rotary", source="qkv", width=parts[0] + parts[1]),
            self._core("rotary", causal=True, dropout=False, window=self.sliding_window),
            RowLinear(
                name="projection", source="core_attention", inputs=parts[0], outputs=hidden, bias=False
            ),
            Residual(name="residual_1", source="projection", width=hidden, bias=False, dropout=False),
        ]

    def _mlp(self) -> list[Module]:
        parts = (self.ffn_width, self.ffn_width)
        return [
            self._norm("norm_2", "residual_1"),
            ColumnLinear(
                name="gate_up", source="norm_2", inputs=self.hidden, parts=parts, bias=False, packed="gate_up"
            ),
            GatedActivation(name="activation", source="gate_up", width=self.ffn_width),
            RowLinear(
                name="down", source="activation", inputs=self.ffn_width, outputs=self.hidden, bias=False
            ),
            Residual(name="residual_2", source="down", width=self.hidden, bias=False, dropout=False),
        ]

    def _head(self) -> Layer:
        modules = (
            self._norm("final_norm", "input", residual=False),
            vocabulary_projection("final_norm", self.hidden, self.vocab, owner=not self.tied_embeddings),
            CrossEntropy(name="loss", source="logits", vocab=self.vocab),
        )
        return Layer("head", "head", modules, self.hidden, 0)


@FAMILIES.register("bert")
class BERT(Transformer):
    """BERT: bidirectional, segment table, norm after each branch, pooler, masked-word head."""

    family: Literal["bert"] = Field(default="bert", description="Always `bert`.")
    segments: int = Field(default=2, ge=0, description="Rows of the segment table.")
    dropout: bool = Field(default=True, description="Whether there is dropout.")
    next_sentence: bool = Field(
        default=True, description="Whether a two-way next-sentence classifier is trained too."
    )

    @property
    def tied(self) -> bool:
        return True

    @property
    def longest_sequence(self) -> int | None:
        return self.max_sequence

    def _norm(self, name: str, source: str, residual: bool = False) -> Norm:
        return Norm(name=name, source=source, width=self.hidden, residual=residual)

    def _embedding(self) -> Layer:
        tables = (self.max_sequence, self.segments) if self.segments else (self.max_sequence,)
        table = Embedding(
            name="embedding", width=self.hidden, vocab=self.vocab, tables=tables, dropout=self.dropout
        )
        return Layer(
            "embedding", "embedding", (table, self._norm("embedding_norm", "embedding")), 0, self.hidden
        )

    def _block(self) -> Layer:
        parts, hidden = self._qkv_parts(), self.hidden
        modules = (
            ColumnLinear(name="qkv", source="input", inputs=hidden, parts=parts, packed="qkv"),
            self._core("qkv", causal=False, dropout=self.dropout),
            RowLinear(name="projection", source="core_attention", inputs=parts[0], outputs=hidden),
            Residual(name="residual_1", source="projection", width=hidden, dropout=self.dropout),
            self._norm("norm_1", "residual_1", residual=True),
            *mlp("norm_1", hidden, self.ffn_width, True),
            Residual(name="residual_2", source="fc2", width=hidden, dropout=self.dropout),
            self._norm("norm_2", "residual_2", residual=True),
        )
        return Layer("block", "block", modules, hidden, hidden)

    def _head(self) -> Layer:
        hidden = self.hidden
        modules: list[Module] = [
            ReplicatedLinear(name="pooler", source="input", inputs=hidden, outputs=hidden, first_token=True)
        ]
        if self.next_sentence:
            modules.append(
                ReplicatedLinear(
                    name="next_sentence", source="pooler", inputs=hidden, outputs=2, first_token=True
                )
            )
        modules += [
            ReplicatedLinear(name="transform", source="input", inputs=hidden, outputs=hidden),
            Activation(
                name="transform_activation", source="transform", width=hidden, bias=False, split=False
            ),
            self._norm("final_norm", "transform_activation"),
            vocabulary_projection("final_norm", hidden, self.vocab, owner=False, bias=True),
            CrossEntropy(name="loss", source="logits", vocab=self.vocab),
        ]
        return Layer("head", "head", tuple(modules), hidden, 0)


def mlp(source: str, hidden: int, ffn: int, biases: bool) -> list[Module]:
    """hidden -> ffn, activation, ffn -> hidden."""
    return [
        ColumnLinear(name="fc1", source=source, inputs=hidden, parts=(ffn,), bias=biases, separate_bias=True),
        Activation(name="activation", source="fc1", width=ffn, bias=biases),
        RowLinear(name="fc2", source="activation", inputs=ffn, outputs=hidden, bias=biases),
    ]


def vocabulary_projection(
    source: str, hidden: int, vocab: int, owner: bool, bias: bool = False
) -> ColumnLinear:
    """The output projection onto the vocabulary; `owner` is False where it reuses the embedding's table."""
    return ColumnLinear(
        name="logits", source=source, inputs=hidden, parts=(vocab,), bias=bias, vocab=True, owner=owner
    )


def divisors(number: int) -> str:
    """` (divisors: ...)`, for messages."""
    found = " ".join(str(d) for d in range(1, number + 1) if number % d == 0)
    return f" (divisors: {found})"
