"""What a model is: a sequence of layers with shapes, and nothing about how it is spread out.

A family is one class in `simulator/workloads/models/`, registered by its `family` name.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.base import Named
from simulator.description.registry import Registry
from simulator.workloads.layers import Layer, Parameters, Shard, enclosing

FAMILIES = Registry("model family", "family")

Faults = list[tuple[str, str]]
"""(key path below the description that is checked, message) pairs."""


class Model(Named):
    """Base of all model families."""

    kind: Literal["model"] = Field(default="model", description="Always `model`.")

    def layers(self) -> tuple[Layer, ...]:
        """All layers in order: embedding, blocks, head. Equal blocks are equal objects."""
        raise NotImplementedError

    def faults(self) -> Faults:
        """What is wrong with the model whatever the plan; keys relative to the model."""
        return []

    def sharding_faults(self, tp: int, cp: int, ep: int, expert_tp: int | None = None) -> Faults:
        """What is wrong with the degrees for this model; keys are those of the plan (`tp`, `cp`, `ep`).

        `expert_tp`: ranks that split one expert; tp if None.
        """
        return []

    @property
    def num_blocks(self) -> int:
        """Layers that a pipeline divides."""
        return sum(layer.kind == "block" for layer in self.layers())

    @property
    def tied(self) -> bool:
        """Whether the head reuses the embedding's table (a pipeline then keeps two copies in step)."""
        return False

    @property
    def longest_sequence(self) -> int | None:
        """Tokens that a learned position table allows; None where nothing bounds the sequence."""
        return None

    @property
    def splits_over_grid(self) -> bool:
        """Whether its layers can be split over more than one dimension of tensor parallelism."""
        return False

    @property
    def attention_heads(self) -> int | None:
        """Heads that context parallelism may exchange for tokens; None without attention."""
        return None

    @property
    def has_tables(self) -> bool:
        """Whether it looks up rows of tables, whose gradients may be sparse."""
        return False

    @property
    def deals_tables(self) -> bool:
        """Whether those tables can be dealt out over GPUs."""
        return False

    @property
    def recomputable(self) -> tuple[str, ...]:
        """Groups of modules that selective recomputation may rerun."""
        blocks = {
            id(layer): layer for layer in self.layers() if layer.kind == "block"
        }.values()  # equal ones are one
        return tuple(dict.fromkeys(g for layer in blocks for m in layer.modules for g in enclosing(m.group)))

    @property
    def counts_tokens(self) -> bool:
        """Whether a sample is a sequence of tokens (else rates are given in samples)."""
        return True

    def parameters(self) -> Parameters:
        """Parameters of the whole model, without padding of the vocabulary."""
        whole = Shard(micro_batch=1, sequence_length=1, vocab_multiple=1)
        return sum((layer.parameters(whole) for layer in self.layers()), Parameters())

    @property
    def num_parameters(self) -> int:
        return self.parameters().total

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets; fewer than all in a mixture of experts."""
        return self.num_parameters

    def forward_flops(self, sequence_length: int, documents: tuple[tuple[int, int], ...] = ()) -> float:
        """Matrix FLOPs of one sample's forward pass, exact, attention counted in full (causal not halved).

        `documents`: (tokens, how many) of the sequences that it is made of, if it is not one.
        """
        whole = Shard(micro_batch=1, sequence_length=sequence_length, vocab_multiple=1, documents=documents)
        return sum(op.model_flops for layer in self.layers() for op in layer.forward(whole))

    def flops(self, sequence_length: int, documents: tuple[tuple[int, int], ...] = ()) -> float:
        """Model FLOPs of one sample in a training step: forward and a backward of twice as much."""
        return 3.0 * self.forward_flops(sequence_length, documents)
