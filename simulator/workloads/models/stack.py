"""Blocks of encoders and decoders whose two sides may differ in width and length: norm before each branch, GELU."""

from __future__ import annotations

from pydantic import Field

from simulator.description.base import Description
from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import Faults
from simulator.workloads.models.dense_transformer import divisors, mlp
from simulator.workloads.modules.at_length import AtLength
from simulator.workloads.modules.attention import CoreAttention
from simulator.workloads.modules.cross_attention import CrossAttention
from simulator.workloads.modules.elementwise import Residual
from simulator.workloads.modules.linear import ColumnLinear, RowLinear
from simulator.workloads.modules.norms import Norm


class Stack(Description):
    """Equal blocks."""

    layers: int = Field(gt=0, description="Number of blocks.")
    hidden: int = Field(gt=0, description="Width of the residual stream.")
    heads: int = Field(gt=0, description="Attention heads.")
    ffn: int | None = Field(
        default=None, gt=0, description="Width of the feed-forward layer; 4 x hidden if left out."
    )
    key_bias: bool = Field(default=True, description="Whether the projection to keys has a bias.")

    @property
    def ffn_width(self) -> int:
        return 4 * self.hidden if self.ffn is None else self.ffn

    def faults(self, key: str) -> Faults:
        if self.hidden % self.heads:
            return [(f"{key}heads", f"{self.heads} heads do not divide hidden {self.hidden}")]
        return []

    def sharding_faults(self, tp: int) -> Faults:
        if self.heads % tp:
            return [("tp", f"{tp} does not divide {self.heads} attention heads{divisors(self.heads)}")]
        return [("tp", f"{tp} does not divide ffn {self.ffn_width}")] if self.ffn_width % tp else []

    def block(self, name: str, causal: bool, length: int | None = None, seen: Seen | None = None) -> Layer:
        """A block on `length` positions (the sequence's if None); it attends to what an encoder has `seen`."""
        hidden = self.hidden
        modules: list[Module] = self._attention("", "input", causal)
        if seen is not None:
            modules += self._cross(seen)
        last = modules[-1].name
        modules += [
            Norm(name="norm_2", source=last, width=hidden),
            *mlp("norm_2", hidden, self.ffn_width, True),
            Residual(name="residual_2", source="fc2", width=hidden, dropout=False),
        ]
        carried = 0 if seen is None else seen.length * seen.width
        return Layer(name, "block", tuple(modules), hidden, hidden, length=length, carried=carried)

    def _attention(self, prefix: str, source: str, causal: bool) -> list[Module]:
        hidden, norm = self.hidden, f"norm_{prefix}1"
        width = hidden // self.heads
        core = CoreAttention(
            name="core_attention",
            source="qkv",
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=width,
            head_dim_v=width,
            causal=causal,
            dropout=False,
        )
        return [
            Norm(name=norm, source=source, width=hidden),
            *self._projections(norm),
            core,
            RowLinear(name="projection", source="core_attention", inputs=hidden, outputs=hidden),
            Residual(name="residual_1", source="projection", width=hidden, dropout=False),
        ]

    def _projections(self, norm: str) -> list[Module]:
        if self.key_bias:
            parts = (self.hidden,) * 3
            return [ColumnLinear(name="qkv", source=norm, inputs=self.hidden, parts=parts, packed="qkv")]
        return [
            _projection(name, norm, self.hidden, self.hidden, bias)
            for name, bias in (("query", True), ("key", False), ("value", True))
        ]

    def _cross(self, seen: Seen) -> list[Module]:
        hidden = self.hidden
        return [
            Norm(name="norm_cross", source="residual_1", width=hidden),
            _projection("cross_query", "norm_cross", hidden, hidden, True),
            AtLength(_projection("cross_key", "encoded", seen.width, hidden, self.key_bias), seen.length),
            AtLength(_projection("cross_value", "encoded", seen.width, hidden, True), seen.length),
            CrossAttention(
                name="cross_attention",
                source="cross_query",
                heads=self.heads,
                head_dim=hidden // self.heads,
                keys=seen.length,
            ),
            RowLinear(name="cross_projection", source="cross_attention", inputs=hidden, outputs=hidden),
            Residual(name="residual_cross", source="cross_projection", width=hidden, dropout=False),
        ]


class Seen(Description):
    """What an encoder hands to decoders: `length` positions of `width` elements per sample."""

    length: int
    width: int


def _projection(name: str, source: str, inputs: int, outputs: int, bias: bool) -> ColumnLinear:
    return ColumnLinear(name=name, source=source, inputs=inputs, parts=(outputs,), bias=bias)
