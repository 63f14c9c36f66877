"""What the layers of GPT-2, GPT-3, MPT and BLOOM are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES
from simulator.workloads.models.dense_transformer import Transformer, mlp
from simulator.workloads.modules.elementwise import Residual, Rotary
from simulator.workloads.modules.linear import ColumnLinear, RowLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import Embedding


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
    def splits_over_grid(self) -> bool:
        return True

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
