"""What all dense transformers share: shapes, divisibility, attention core, feed-forward, output projection."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import Faults, Model
from simulator.workloads.modules.attention import CoreAttention
from simulator.workloads.modules.elementwise import Activation
from simulator.workloads.modules.linear import ColumnLinear, RowLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import CrossEntropy


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

    @property
    def head_owns_table(self) -> bool:
        """Whether the output projection has a table of its own."""
        return not self.tied

    @property
    def attention_heads(self) -> int | None:
        return self.heads

    def faults(self) -> Faults:
        found = []
        if self.head_dim is None and self.hidden % self.heads:
            found.append(("heads", f"{self.heads} heads do not divide hidden {self.hidden}; give head_dim"))
        if self.heads % self.num_kv_heads:
            found.append(("kv_heads", f"{self.num_kv_heads} does not divide {self.heads} heads"))
        return found

    def sharding_faults(self, tp: int, cp: int, ep: int, expert_tp: int | None = None) -> Faults:
        found = self._attention_faults(tp)
        if self.ffn_width % tp:
            found.append(("tp", f"{tp} does not divide ffn {self.ffn_width}"))
        if ep > 1:
            found.append(("ep", f"ep {ep} needs a model with experts; {self.name or 'this model'} has none"))
        return found

    def _attention_faults(self, tp: int) -> Faults:
        found: Faults = []
        if self.heads % tp:
            found.append(("tp", f"{tp} does not divide {self.heads} attention heads{divisors(self.heads)}"))
        elif self.num_kv_heads % tp:
            count = self.num_kv_heads
            found.append(("tp", f"{tp} does not divide {count} key-value heads{divisors(count)}"))
        return found

    def _qkv_parts(self) -> tuple[int, ...]:
        kv = self.num_kv_heads * self.width_per_head
        return (self.heads * self.width_per_head, kv, kv)

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        return self._find_layers()

    def _find_layers(self) -> tuple[Layer, ...]:
        return (self._embedding(), *[self._block()] * self.num_layers, self._head())

    def _embedding(self) -> Layer:
        raise NotImplementedError

    def _block(self) -> Layer:
        raise NotImplementedError

    def _norm(self, name: str, source: str, residual: bool = True) -> Norm:
        raise NotImplementedError

    def _head(self) -> Layer:
        modules = (
            self._norm("final_norm", "input", residual=False),
            vocabulary_projection("final_norm", self.hidden, self.vocab, owner=self.head_owns_table),
            CrossEntropy(name="loss", source="logits", vocab=self.vocab),
        )
        return Layer("head", "head", modules, self.hidden, 0)

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


def mlp(source: str, hidden: int, ffn: int, biases: bool) -> list[Module]:
    """hidden -> ffn, activation, ffn -> hidden."""
    return [
        ColumnLinear(
            name="fc1",
            source=source,
            inputs=hidden,
            parts=(ffn,),
            bias=biases,
            separate_bias=True,
            group="mlp",
        ),
        Activation(name="activation", source="fc1", width=ffn, bias=biases, group="mlp mlp_activation"),
        RowLinear(name="fc2", source="activation", inputs=ffn, outputs=hidden, bias=biases, group="mlp"),
    ]


def vocabulary_projection(
    source: str, hidden: int, vocab: int, owner: bool, bias: bool = False, borrowed: bool = False
) -> ColumnLinear:
    """The output projection onto the vocabulary; `owner` is False where it reuses the embedding's table.

    `borrowed`: it reuses the table of the head beside it.
    """
    return ColumnLinear(
        name="logits",
        source=source,
        inputs=hidden,
        parts=(vocab,),
        bias=bias,
        vocab=True,
        owner=owner,
        borrowed=borrowed,
    )


def divisors(number: int) -> str:
    """` (divisors: ...)`, for messages."""
    found = " ".join(str(d) for d in range(1, number + 1) if number % d == 0)
    return f" (divisors: {found})"
