"""How fully sharded data parallelism (ZeRO-3, FSDP) shares out parameters, and when they come together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.description.quantities import Bytes, Fraction


class FullySharded(Description):
    """How ZeRO-3 (FSDP) shares out and gathers parameters; the unit is one layer."""

    prefetch: int = Field(default=1, ge=0, description="Layers gathered ahead of the one that runs.")
    reshard_after_forward: bool = Field(
        default=True, description="Free gathered parameters after forward and gather them again for backward."
    )
    shard_group: int | None = Field(
        default=None,
        gt=0,
        description="Neighbouring ranks of dp x cp that share one copy (HSDP, MiCS); gradients are summed over the "
        "copies too. All of dp x cp if left out.",
    )
    sum_copies_last: bool = Field(
        default=False,
        description="With shard_group: sum gradients over the copies only after the last micro-batch (MiCS).",
    )
    secondary_group: int | None = Field(
        default=None,
        gt=0,
        description="Neighbouring ranks that keep a second copy after forward, for the gather of backward (hpZ).",
    )
    fraction: Fraction | Literal["auto"] = Field(
        default=1.0,
        description="Of every layer's parameters, the part that is shared out; the rest is replicated as under zero 0 "
        "(OSDP). auto: as little as leaves the step within memory_limit, if that is faster.",
    )
    fractions: dict[str, Fraction] = Field(
        default_factory=dict,
        description="The same by kind of layer (embedding, block, head, prediction), instead of fraction.",
    )
    slices: int = Field(
        default=1,
        gt=0,
        description="Cuts every layer into so many slices that are gathered, and their gradients summed, one after the "
        "other (OSDP's operator splitting).",
    )
    unsharded: Bytes | Literal["auto"] = Field(
        default=0.0,
        description="Gathered parameters that stay over the micro-batches of a step, for as many layers as fit "
        "(DeepCompile), shared evenly by the chunks of a stage. auto: as much as leaves the step within memory_limit, "
        "if that is faster.",
    )
    memory_limit: Bytes | None = Field(
        default=None,
        description="What auto may fill of each GPU's memory; all of it if left out.",
    )
    parts: Literal["even", "proportional"] | tuple[float, ...] = Field(
        default="even",
        description="How large the shard of each rank of dp x cp is: all equal; by the peak of their GPUs; or in the "
        "ratios listed, along cp and then dp (HAP).",
    )
    unequal: Literal["padded", "grouped"] = Field(
        default="padded",
        description="How unequal shards travel: padded to the longest, in one collective; or each by itself, one after "
        "the other.",
    )
    gather_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8"] | None = Field(
        default=None, description="Type in which parameters travel; that of activations if left out."
    )

    @property
    def undecided(self) -> Literal["fraction", "unsharded"] | None:
        """What is to be found (`auto`); until it is, all is shared out and nothing stays gathered."""
        if self.fraction == "auto":
            return "fraction"
        return "unsharded" if self.unsharded == "auto" else None

    @property
    def unsharded_bytes(self) -> float:
        """Most bytes of gathered parameters that stay on a GPU."""
        return 0.0 if self.unsharded == "auto" else self.unsharded

    def fraction_of(self, kind: str) -> float:
        """The part of a layer of that kind that is shared out."""
        return self.fractions.get(kind, 1.0 if self.fraction == "auto" else self.fraction)
