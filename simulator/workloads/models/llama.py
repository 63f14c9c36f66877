"""What the layers of Llama, Mistral and Qwen are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES
from simulator.workloads.models.dense_transformer import Transformer
from simulator.workloads.modules.elementwise import GatedActivation, Residual, Rotary
from simulator.workloads.modules.linear import ALTERNATE, ColumnLinear, RowLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import Embedding


class GatedTransformer(Transformer):
    """What Llama and its relatives share: RMSNorm, rotary positions, SwiGLU, grouped queries, no dropout."""

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
    projection_bias: bool = Field(
        default=False, description="Whether attention's output projection has a bias (gpt-oss)."
    )
    rotary_factor: bool = Field(
        default=False,
        description="Whether cosines and sines of the positions carry a factor (YaRN's attention factor: gpt-oss).",
    )

    @property
    def tied(self) -> bool:
        return self.tied_embeddings

    def _norm(self, name: str, source: str, residual: bool = True) -> Norm:
        return Norm(name=name, source=source, width=self.hidden, kind="rms", bias=False, residual=residual)

    def _embedding(self) -> Layer:
        table = Embedding(name="embedding", width=self.hidden, vocab=self.vocab, dropout=False)
        return Layer("embedding", "embedding", (table,), 0, self.hidden)

    def _attention(self, window: int | None, source: str = "input") -> list[Module]:
        """Norm, attention over `window` keys (all for None), residual."""
        parts, hidden = self._qkv_parts(), self.hidden
        modules: list[Module] = [
            self._norm("norm_1", source),
            ColumnLinear(
                name="qkv",
                source="norm_1",
                inputs=hidden,
                parts=parts,
                bias=self.qkv_bias,
                packed="qkv",
                group=ALTERNATE,
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
            Rotary(
                name="rotary",
                group=ALTERNATE,
                source="qkv",
                width=parts[0] + parts[1],
                scaled=self.rotary_factor,
            ),
            self._core("rotary", causal=True, dropout=False, window=window),
            *self._projection(parts[0]),
        ]

    def _projection(self, inputs: int) -> list[Module]:
        """From the core's output back onto the residual stream."""
        hidden, bias = self.hidden, self.projection_bias
        return [
            RowLinear(
                name="projection",
                source="core_attention",
                inputs=inputs,
                outputs=hidden,
                bias=bias,
                group=ALTERNATE,
            ),
            Residual(
                name="residual_1",
                source="projection",
                width=hidden,
                bias=bias,
                dropout=False,
                group=ALTERNATE,
            ),
        ]

    def _mlp(self) -> list[Module]:
        """Norm, gated feed-forward layer, residual."""
        return [
            self._norm("norm_2", "residual_1"),
            *gated_mlp("norm_2", self.hidden, self.ffn_width),
            Residual(name="residual_2", source="down", width=self.hidden, bias=False, dropout=False),
        ]


@FAMILIES.register("llama")
class Llama(GatedTransformer):
    """Llama 1-3, Mistral, Qwen: RMSNorm, rotary positions, SwiGLU, grouped queries, no biases, no dropout."""

    family: Literal["llama"] = Field(default="llama", description="Always `llama`.")
    ffn: int = Field(gt=0, description="Width of the gated feed-forward layer.")

    @property
    def splits_over_grid(self) -> bool:
        return True

    def _block(self) -> Layer:
        modules = (*self._attention(self.sliding_window), *self._mlp())
        return Layer("block", "block", modules, self.hidden, self.hidden)


def gated_mlp(source: str, hidden: int, ffn: int, prefix: str = "", group: str = "") -> list[Module]:
    """Gate and up projections, silu(gate) * up, down projection; names begin with `prefix`.

    `group`: what recomputes all three together (`mlp` if empty, and the activation on its own).
    """
    gate_up, activation, down = (f"{prefix}{name}" for name in ("gate_up", "activation", "down"))
    return [
        ColumnLinear(
            name=gate_up,
            source=source,
            inputs=hidden,
            parts=(ffn, ffn),
            bias=False,
            packed="gate_up",
            group=group or f"mlp {ALTERNATE}",
        ),
        GatedActivation(name=activation, source=gate_up, width=ffn, group=group or "mlp mlp_activation"),
        RowLinear(name=down, source=activation, inputs=ffn, outputs=hidden, bias=False, group=group or "mlp"),
    ]
