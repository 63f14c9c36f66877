"""What is trained: a model with its batch, precision and plan."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

import simulator.workloads.models  # noqa: F401  registers the families
from simulator.description.base import Named
from simulator.description.faults import raise_if_any
from simulator.workloads.data import Data, documents_of, rows_of
from simulator.workloads.layers import Layer, Shard, with_wide_ends
from simulator.workloads.model import FAMILIES, Model
from simulator.workloads.operators import DTYPE_BYTES
from simulator.workloads.packing import Row, attended, counted
from simulator.workloads.plan import Plan, Precision
from simulator.workloads.plan_checks import cluster_faults, workload_faults
from simulator.workloads.plan_warnings import WARNINGS
from simulator.workloads.routing import Routing
from simulator.workloads.stage_view import samples, seen_from


class Workload(Named):
    """One training job; sizes that depend on the cluster take the number of GPUs as an argument."""

    kind: Literal["workload"] = Field(default="workload", description="Always `workload`.")
    model: Annotated[Model, FAMILIES] = Field(description="The model: a catalogue name or a mapping.")
    global_batch: int = Field(gt=0, description="Samples per step over all GPUs; documents, with `data`.")
    sequence_length: int = Field(
        gt=0, description="Tokens per sample; of the longest document and of a full row, with `data`."
    )
    data: Data | None = Field(
        default=None,
        description="Documents of unequal length; every sample is one full sequence if left out.",
    )
    precision: Precision = Field(description="Type that GEMMs compute in.")
    plan: Plan = Field(
        default=Plan(name=""), description="How the model is spread: a catalogue name or a mapping."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        faults = [(f"model.{key}", message) for key, message in self.model.faults()]
        raise_if_any(faults or workload_faults(self))
        return self

    @property
    def by_stage(self) -> tuple[Workload, ...]:
        """The workload as each pipeline stage sees it: the workload itself, once, where all see the same."""
        plan = self.plan
        views = (seen_from(plan, stage) for stage in range(len(plan.stages)))
        return tuple(self.model_copy(update={"plan": view}) for view in views) or (self,)

    def faults_on(self, num_gpus: int) -> list[tuple[str, str]]:
        """Why the plan cannot run on that many GPUs: (key, message) pairs, empty if it can."""
        return cluster_faults(self, num_gpus)

    def warnings_on(self, num_gpus: int, flash: str | None) -> list[tuple[str, str]]:
        """What in the plan has no or a surprising effect at all stages; `flash`: the software's kernel, or None."""
        views = [
            [found for warn in WARNINGS for found in warn(view, flash, num_gpus)] for view in self.by_stage
        ]
        everywhere = set.intersection(*({key for key, _ in view} for view in views))
        return [(key, message) for key, message in views[0] if key in everywhere]

    def num_micro_batches(self, num_gpus: int) -> int:
        """Micro-batches that each replica runs per step; the last may lack rows, with `data`.

        Where documents are dealt, they are known only with the cluster; this is how many there can be.
        """
        if self.deals:
            return len(self.documents)
        if self.plan.stages:
            return self.global_batch // samples(self.plan)
        together = self.plan.micro_batch * self.plan.contributing(num_gpus)
        return self.global_batch // together if self.data is None else -(-len(self.rows) // together)

    @property
    def deals(self) -> bool:
        """Whether documents are dealt to groups of GPUs instead of being laid into rows."""
        return self.data is not None and self.data.packing == "dealt"

    @property
    def documents(self) -> tuple[int, ...]:
        """Tokens of each document of a step, in the order drawn."""
        if self.data is None:
            return (self.sequence_length,) * self.global_batch
        return documents_of(self.data, self.global_batch, self.sequence_length)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Tokens of the documents in each row of a step."""
        if self.data is None:
            return ((self.sequence_length,),) * self.global_batch
        return rows_of(self.data, self.global_batch, self.sequence_length)

    @property
    def tokens(self) -> int:
        """Tokens per step, without padding."""
        if self.data is None:
            return self.global_batch * self.sequence_length
        return sum(self.documents)

    @property
    def flops(self) -> float:
        """Model FLOPs per step: exact, attention in full (causal not halved), no recomputation, no padding."""
        if self.data is None:
            return self.global_batch * self.model.flops(self.sequence_length)
        sequences = [attended(row, self.data.mask) for row in self.rows]
        return self.model.flops(self.tokens, counted(length for row in sequences for length in row))

    def layers(self) -> tuple[Layer, ...]:
        """The model's layers, of which the plan may keep some in a wider type than others."""
        layers, ends = self.model.layers(), self.plan.wide_ends
        return with_wide_ends(layers, ends.first, ends.last) if ends.first or ends.last else layers

    @property
    def activation_dtype(self) -> str:
        """Type of activations: the compute type, or bf16 beside fp8 and narrower GEMMs."""
        if self.precision == "tf32":
            return "fp32"
        return self.precision if DTYPE_BYTES[self.precision] >= 2 else "bf16"

    @property
    def gradient_dtype(self) -> str:
        """Type in which gradients are summed and reduced (Megatron: fp32 for bf16, fp16 for fp16)."""
        if self.plan.gradient_dtype is not None:
            return self.plan.gradient_dtype
        return "fp16" if self.precision == "fp16" else "fp32"

    @property
    def scaling(self) -> str:
        """How narrow tensors are scaled."""
        if self.plan.scaling is not None:
            return self.plan.scaling
        return "block" if self.precision in ("mxfp8", "nvfp4") else "delayed"

    @property
    def parameter_dtype(self) -> str:
        """Type in which parameters rest between steps."""
        if self.plan.parameter_dtype is not None:
            return self.plan.parameter_dtype
        return "fp32" if self.plan.zero == 3 else self.activation_dtype

    @property
    def master_weights(self) -> bool:
        """Whether the update works on a separate fp32 copy."""
        if self.plan.master_weights is not None:
            return self.plan.master_weights
        return DTYPE_BYTES[self.parameter_dtype] < 4

    def shard(
        self,
        fusions: frozenset[str],
        flash: str | None,
        tp_overlap: bool | str = True,
        accumulate: bool = True,
        recompute: str | None = None,
        unpads: bool = False,
        loss_chunks: int = 1,
        loss_metrics: int = 0,
        recompute_stops_early: bool = False,
        dtensor: bool = False,
        whole_logits: bool = False,
    ) -> Shard:
        """How one GPU sees a layer under this plan.

        `fusions`, `flash` (None: the software has no flash kernel, so attention is unfused), `tp_overlap`, `unpads`,
        `loss_chunks`, `loss_metrics`, `recompute_stops_early`, `dtensor` and `whole_logits` are the software's; the
        plan's own `overlap.tp` goes first, and its `unfused` are left out. `recompute` overrides the plan's (for
        blocks beyond `recompute_layers`).
        """
        plan = self.plan
        overlap = tp_overlap if plan.overlap.tp is None else plan.overlap.tp
        return Shard(
            micro_batch=plan.micro_batch // plan.tp_z,
            sparse=plan.synchronisation.sparse,
            table_memory=plan.table_memory,
            sequence_length=self.sequence_length,
            tp=plan.tp,
            tp_x=plan.tp_x,
            tp_z=plan.tp_z,
            cp=plan.cp,
            ep=plan.ep,
            expert_tp=plan.expert_tp,
            routing=Routing(
                load=plan.experts.load,
                skew=plan.experts.skew,
                seed=plan.experts.seed,
                capacity=plan.experts.capacity,
                deduplicated=plan.experts.deduplicated,
                domain=plan.experts.domain,
                dtype=plan.experts.dispatch_dtype,
            ),
            sequence_parallel=plan.sequence_parallel,
            dtype=self.activation_dtype,
            gemm_dtype=self.precision,
            scaling=self.scaling,
            casts_weights=plan.zero == 3 and plan.zero3.gather_dtype is None,
            attention=flash if plan.attention == "flash" and flash is not None else "unfused",
            recompute=plan.recompute if recompute is None else recompute,
            recompute_groups=frozenset(plan.recompute_modules),
            fusions=fusions.difference(plan.unfused),
            gated_input_dtype=plan.gated_input_dtype or self.activation_dtype,
            unpads=unpads,
            graphs=frozenset(plan.cuda_graphs),
            shared_beside=plan.overlap.shared_expert,
            tp_overlap="pipelined" if overlap == "pipelined" else "backward" if overlap else "none",
            context_exchange=plan.context_exchange,
            context_layout=plan.context_layout,
            ulysses_ranks=plan.ulysses or 1,
            gradient_dtype=self.gradient_dtype,
            accumulate_gradients=accumulate,
            vocab_multiple=plan.vocab_multiple,
            separate_head=plan.separates_ends,
            loss_chunks=loss_chunks,
            loss_metrics=loss_metrics,
            recompute_stops_early=recompute_stops_early,
            dtensor=dtensor,
            whole_logits=whole_logits,
            offloaded=plan.offload.activations,
        )
