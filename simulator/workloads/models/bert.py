"""What the layers of BERT are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES
from simulator.workloads.models.dense_transformer import Transformer, mlp, vocabulary_projection
from simulator.workloads.modules.elementwise import Activation, Residual
from simulator.workloads.modules.linear import ColumnLinear, ReplicatedLinear, RowLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import CrossEntropy, Embedding


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
