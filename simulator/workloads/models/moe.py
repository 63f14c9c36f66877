"""What the layers of mixtures of experts are: Mixtral, DeepSeek-V2 and V3, Qwen3-MoE, gpt-oss and relatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES, Faults
from simulator.workloads.models.dense_transformer import divisors, vocabulary_projection
from simulator.workloads.models.llama import GatedTransformer, gated_mlp
from simulator.workloads.modules.attention import CoreAttention
from simulator.workloads.modules.dispatch import BranchSum, Combine, Dispatch, ExpertChoice
from simulator.workloads.modules.elementwise import Residual
from simulator.workloads.modules.experts import ExpertActivation, ExpertLinear
from simulator.workloads.modules.latent_attention import LatentShape, latent_projections
from simulator.workloads.modules.linear import ColumnGather, ColumnLinear, ReplicatedLinear
from simulator.workloads.modules.vocabulary import CrossEntropy, Embedding


class LatentAttention(Description):
    """Multi-head latent attention (DeepSeek-V2): widths of the latents and of the parts of a head."""

    query_rank: int | None = Field(
        default=None,
        gt=0,
        description="Width of the query latent; queries are projected directly if left out.",
    )
    key_value_rank: int = Field(gt=0, description="Width of the latent of keys and values.")
    rope: int = Field(gt=0, description="Per head: width of the part that carries the position.")
    plain: int = Field(gt=0, description="Per head: width of the part of queries and keys without position.")
    value: int = Field(gt=0, description="Per head: width of the values.")

    @property
    def shape(self) -> LatentShape:
        return LatentShape(
            query_rank=self.query_rank,
            key_value_rank=self.key_value_rank,
            rope=self.rope,
            plain=self.plain,
            value=self.value,
        )


@FAMILIES.register("moe")
class MixtureOfExperts(GatedTransformer):
    """Llama-like blocks whose feed-forward layer is chosen per token among experts."""

    family: Literal["moe"] = Field(default="moe", description="Always `moe`.")
    num_experts: int = Field(alias="experts", gt=1, description="Routed experts per layer.")
    top_k: int = Field(gt=0, description="Experts that each token visits.")
    expert_ffn: int = Field(gt=0, description="Width of one routed expert.")
    shared_ffn: int = Field(
        default=0, ge=0, description="Width of the shared expert that every token visits; 0: there is none."
    )
    dense_layers: int = Field(
        default=0, ge=0, description="First blocks with a plain feed-forward layer of width ffn."
    )
    expert_every: int = Field(
        default=1, gt=0, description="After dense_layers, each so-many-th block has experts, the others ffn."
    )
    router_bias: bool = Field(default=False, description="Whether the router has a bias (gpt-oss).")
    expert_bias: bool = Field(default=False, description="Whether experts have biases (gpt-oss).")
    expert_clamp: bool = Field(
        default=False, description="Whether the inputs of the experts' activation are limited (gpt-oss)."
    )
    choice_correction: bool = Field(
        default=False,
        description="Whether a bias per expert balances the choice without a loss (DeepSeek-V3).",
    )
    expert_groups: int = Field(
        default=1,
        gt=0,
        description="Groups into which experts fall for node-limited routing (DeepSeek-V3: 8).",
    )
    groups_per_token: int = Field(
        default=1, gt=0, description="Of those groups, how many a token may choose its experts from."
    )
    latent: LatentAttention | None = Field(
        default=None, description="Latent attention (MLA); grouped-query attention if left out."
    )
    sinks: bool = Field(default=False, description="Whether each head has a learned sink logit (gpt-oss).")
    full_attention_every: int = Field(
        default=1,
        gt=0,
        description="With sliding_window: each so-many-th block has full attention; 1: windows everywhere.",
    )
    prediction_layers: int = Field(
        default=0, ge=0, description="Multi-token prediction: further blocks with losses on later tokens."
    )

    @property
    def tied(self) -> bool:
        """The embedding also stands beside the head where later tokens are predicted from it."""
        return self.tied_embeddings or self.prediction_layers > 0

    @property
    def head_owns_table(self) -> bool:
        return not self.tied_embeddings

    @property
    def width_per_head(self) -> int:
        return self.latent.shape.head_dim if self.latent is not None else super().width_per_head

    @property
    def num_kv_heads(self) -> int:
        return self.heads if self.latent is not None else super().num_kv_heads

    @property
    def num_active_parameters(self) -> int:
        """Without the routed experts that a token does not visit."""
        biases = 2 * self.expert_ffn + self.hidden if self.expert_bias else 0
        expert = 3 * self.hidden * self.expert_ffn + biases
        blocks = sum(self._has_experts(index) for index in range(self.num_layers)) + self.prediction_layers
        return self.num_parameters - blocks * (self.num_experts - self.top_k) * expert

    def faults(self) -> Faults:
        found = [] if self.latent is not None else super().faults()
        if self.top_k > self.num_experts:
            found.append(("top_k", f"{self.top_k} of {self.num_experts} experts"))
        if self.dense_layers > self.num_layers:
            found.append(("dense_layers", f"{self.dense_layers} of {self.num_layers} layers"))
        if self.groups_per_token > self.expert_groups:
            found.append(("groups_per_token", f"{self.groups_per_token} of {self.expert_groups} groups"))
        if self.num_experts % self.expert_groups:
            found.append(
                ("expert_groups", f"{self.expert_groups} does not divide {self.num_experts} experts")
            )
        elif self.top_k * self.expert_groups > self.num_experts * self.groups_per_token:
            message = f"hold fewer than top_k {self.top_k} experts"
            found.append(("groups_per_token", f"{self.groups_per_token} groups {message}"))
        plain = self.dense_layers > 0 or self.expert_every > 1
        if plain and self.ffn is None:
            found.append(("ffn", "blocks without experts need the width of their feed-forward layer"))
        return found

    def sharding_faults(self, tp: int, cp: int, ep: int, expert_tp: int | None = None) -> Faults:
        found = self._attention_faults(tp)
        split = tp if expert_tp is None else expert_tp
        if self.num_experts % ep:
            found.append(
                ("ep", f"{ep} does not divide {self.num_experts} experts{divisors(self.num_experts)}")
            )
        if self.expert_ffn % split:
            key = "tp" if expert_tp is None else "experts.tp"
            found.append((key, f"{split} does not divide expert_ffn {self.expert_ffn}"))
        if self.shared_ffn % tp:
            found.append(("tp", f"{tp} does not divide shared_ffn {self.shared_ffn}"))
        if self.ffn is not None and self.ffn % tp:
            found.append(("tp", f"{tp} does not divide ffn {self.ffn}"))
        return found

    def _has_experts(self, index: int) -> bool:
        return index >= self.dense_layers and (index - self.dense_layers + 1) % self.expert_every == 0

    def _window(self, index: int) -> int | None:
        full = self.full_attention_every > 1 and (index + 1) % self.full_attention_every == 0
        return None if full else self.sliding_window

    def _find_layers(self) -> tuple[Layer, ...]:
        kinds = [(self._window(i), self._has_experts(i)) for i in range(self.num_layers)]
        distinct = {kind: self._block_of(*kind) for kind in dict.fromkeys(kinds)}
        blocks = (distinct[kind] for kind in kinds)
        predictions = (self._prediction(),) * self.prediction_layers
        return (self._embedding(), *blocks, self._head(), *predictions)

    def _block_of(self, window: int | None, experts: bool) -> Layer:
        name = "expert block" if experts else "block"
        modules = (*self._attention(window), *(self._mixture() if experts else self._mlp()))
        return Layer(name, "block", modules, self.hidden, self.hidden)

    def _attention(self, window: int | None, source: str = "input") -> list[Module]:
        if self.latent is None:
            return super()._attention(window, source)
        return [
            self._norm("norm_1", source),
            *latent_projections("norm_1", self.hidden, self.heads, self.latent.shape),
            self._core("rotary", causal=True, dropout=False, window=window),
            *self._projection(self.heads * self.latent.value),
        ]

    def _core(self, source: str, causal: bool, dropout: bool, window: int | None = None) -> CoreAttention:
        core = super()._core(source, causal, dropout, window)
        value = core.head_dim_v if self.latent is None else self.latent.value
        return replace(core, head_dim_v=value, sinks=self.sinks)

    def _mixture(self) -> list[Module]:
        """Norm, routed experts, shared expert, residual."""
        hidden = self.hidden
        shared: list[Module] = []
        if self.shared_ffn:
            shared = gated_mlp("norm_2", hidden, self.shared_ffn, prefix="shared_", group="moe.shared")
        return [
            self._norm("norm_2", "residual_1"),
            BranchSum(name="mixture", source="norm_2", width=hidden, shared=self.shared_ffn > 0),
            *self._routed("norm_2"),
            *shared,
            Residual(name="residual_2", source="combine", width=hidden, bias=False, dropout=False),
        ]

    def _routed(self, source: str) -> list[Module]:
        """Router, and experts between dispatch and combine."""
        hidden, count, top_k = self.hidden, self.num_experts, self.top_k

        def experts(name: str, source: str, inputs: int, outputs: int, columns: bool) -> ExpertLinear:
            return ExpertLinear(
                name=name,
                source=source,
                inputs=inputs,
                outputs=outputs,
                num_experts=count,
                top_k=top_k,
                columns=columns,
                bias=self.expert_bias,
            )

        def exchange(kind: type[Dispatch] | type[Combine], name: str, source: str) -> Module:
            return kind(
                name=name,
                source=source,
                width=hidden,
                num_experts=count,
                top_k=top_k,
                groups=self.expert_groups,
                groups_per_token=self.groups_per_token,
            )

        router = ReplicatedLinear(
            name="router", source=source, inputs=hidden, outputs=count, bias=self.router_bias, group="moe"
        )
        choice = ExpertChoice(
            name="choice", source="router", num_experts=count, top_k=top_k, correction=self.choice_correction
        )
        return [
            router,
            choice,
            exchange(Dispatch, "dispatch", source),
            experts("expert_gate_up", "dispatch", hidden, 2 * self.expert_ffn, columns=True),
            ExpertActivation(
                name="expert_activation",
                source="expert_gate_up",
                width=self.expert_ffn,
                num_experts=count,
                top_k=top_k,
                clamped=self.expert_clamp,
            ),
            experts("expert_down", "expert_activation", self.expert_ffn, hidden, columns=False),
            exchange(Combine, "combine", "expert_down"),
        ]

    def _prediction(self) -> Layer:
        """One depth of multi-token prediction (DeepSeek-AI 2024, DeepSeek-V3 section 2.2).

        The hidden state and the embedding of the next token, both normed, are projected to one, pass a block, and
        meet the shared head.
        """
        hidden = self.hidden
        modules = (
            Embedding(name="next_embedding", width=hidden, vocab=self.vocab, dropout=False, owner=False),
            self._norm("embedding_norm", "next_embedding", residual=False),
            self._norm("hidden_norm", "input", residual=False),
            ColumnLinear(name="merge", source="hidden_norm", inputs=2 * hidden, parts=(hidden,), bias=False),
            ColumnGather(name="merged", source="merge", width=hidden),
            *self._attention(self.sliding_window, "merged"),
            *self._mixture(),
            self._norm("prediction_norm", "residual_2", residual=False),
            vocabulary_projection("prediction_norm", hidden, self.vocab, owner=False, borrowed=True),
            CrossEntropy(name="loss", source="logits", vocab=self.vocab),
        )
        return Layer("prediction", "prediction", modules, hidden, 0)
