"""What the layers of Llama, Mistral and Qwen are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES
from simulator.workloads.models.dense_transformer import Transformer
from simulator.workloads.modules.elementwise import GatedActivation, Residual, Rotary
from simulator.workloads.modules.linear import ColumnLinear, RowLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import Embedding


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
