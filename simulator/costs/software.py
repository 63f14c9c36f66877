"""What the training software costs: launches, synchronisation, fusions, optimizer passes, memory overheads.

A profile describes one software generation (megatron-2021, fsdp2-2024, ...) and lives in
hardware/calibrations/software/. Nothing in it depends on a model or on a plan.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from pydantic import Field

from simulator.description.base import Description, Named
from simulator.description.quantities import Bytes, BytesPerSecond, Fraction, Seconds


class OverlapDefaults(Description):
    """What the software overlaps unless the plan says otherwise."""

    dp_gradients: bool = Field(description="gradient reduction runs behind the last backward")
    dp_parameters: bool = Field(description="gather of updated parameters runs behind the next forward")
    tp: bool | Literal["pipelined"] = Field(
        description="tensor-parallel collectives run behind independent GEMMs of the same layer; pipelined: also GEMMs "
        "are cut into pieces that overlap their own collective"
    )
    pp: bool = Field(description="pipeline sends and receives run behind compute")


class OptimizerCost(Description):
    """How the optimizer step is carried out."""

    norm_passes: float = Field(
        description="times all gradients are read to find the norm, check and clip them"
    )
    kernels_per_parameter_tensor: float = Field(
        description="launches per parameter tensor (0: multi-tensor fused)"
    )
    extra_copies: float = Field(
        description="bytes copied per parameter besides the update itself (casts, flattening)"
    )
    host_synchronisations: int = Field(
        description="times per step the host waits for the GPU (norm, overflow check)"
    )


class MemoryOverheads(Description):
    """Memory that is no tensor of the model."""

    context: Bytes = Field(description="CUDA context, libraries and communicator buffers per GPU")
    fragmentation: Fraction = Field(description="allocator slack as a fraction of all dynamic tensors")
    gather_copies: int = Field(
        default=0,
        ge=0,
        description="buffers besides the gathered parameters themselves while a gather runs (ZeRO-3)",
    )
    narrow_gradients: bool = Field(
        default=False,
        description="16-bit gradients of the whole stage stand beside their fp32 sums",
    )
    flat_update: bool = Field(
        default=False,
        description="16-bit gradients are copied for the update into one fp32 buffer, larger than any block that was "
        "freed before",
    )


class ParameterServers(Description):
    """What servers on the hosts, and the way to them, cost."""

    network: Fraction = Field(
        description="part of the network's rate that transfers to and from servers achieve"
    )
    dense: BytesPerSecond = Field(
        description="bytes of dense parameters that a server takes in, or gives out"
    )
    rows: BytesPerSecond = Field(
        description="the same of rows of tables, which it finds and adds up one by one"
    )
    incast: float = Field(
        default=0.0,
        ge=0,
        description="how much longer a NIC takes to receive for each node that sends to it beside the first, relative",
    )
    gather: Literal["collective", "hosts"] = Field(
        default="collective",
        description="how rows come from all ranks without servers: by the collective library, or to every rank from "
        "every other host (MPI_Allgatherv)",
    )


class SoftwareProfile(Named):
    """One software generation."""

    kind: Literal["software"] = "software"
    description: str = Field(description="what the profile stands for")
    launch: Seconds = Field(description="host time to launch one forward kernel, framework overhead included")
    launch_backward: Seconds = Field(description="host time to launch one backward kernel")
    blocking_launches: bool = Field(
        default=False,
        description="the host waits for every kernel before it launches the next (CUDA_LAUNCH_BLOCKING=1)",
    )
    call: Seconds = Field(
        default=0.0,
        description="host time of one call of a module, forward or backward, besides its launches",
    )
    awaits_token_counts: bool = Field(
        default=True,
        description="the host of a mixture without capacity waits, layer by layer, for how many tokens each rank gets",
    )
    synchronous_p2p: bool = Field(description="the host waits for every pipeline transfer before it goes on")
    p2p_overhead: Seconds = Field(description="host time per pipeline transfer (shape exchange, batching)")
    scatter_gather: bool = Field(
        description="boundary tensors are cut over tp on their way to another stage, unless the plan says otherwise"
    )
    zero1: Literal["reduce_scatter", "all_reduce"] = Field(
        default="reduce_scatter",
        description="how gradients meet under ZeRO-1: reduce_scatter, or a plain all_reduce as without sharding",
    )
    zero1_gather: Literal["all_gather", "broadcast"] = Field(
        default="all_gather",
        description="how updated parameters are handed out under ZeRO-1 and 2: all_gather, or a broadcast per owner",
    )
    zero3_overhead: Seconds = Field(
        default=0.0,
        description="time per gather and per reduction of sharded parameters in which the host prepares it (hooks, "
        "copies in and out) while nothing is computed: on CPUs",
    )
    zero3_copies: bool = Field(
        default=False,
        description="sharded parameters are copied out of the buffer they are gathered in before a unit computes, and "
        "its gradients into the one that is reduced, by kernels among its own",
    )
    backward_awaits_reduction: bool = Field(
        default=False,
        description="the backward that completes gradients returns when they are reduced, and only then does its "
        "gradient go to the previous pipeline stage",
    )
    fusions: tuple[str, ...] = Field(description="fused operators available")
    loss_chunks: int = Field(
        default=1,
        gt=0,
        description="pieces of the tokens whose logits and loss run forward and backward one after the other",
    )
    loss_metrics: int = Field(
        default=0,
        ge=0,
        description="cross entropies that the training loop computes for its metrics from every micro-batch's logits, "
        "in fp32 and besides the loss",
    )
    recompute_stops_early: bool = Field(
        default=False,
        description="full recomputation of a block ends with the last tensor that backward asks for: what follows (the "
        "last projection) is not run again",
    )
    dtensor: bool = Field(
        default=False,
        description="tensor parallelism is PyTorch's: autograd keeps gathered inputs for weight gradients (Megatron "
        "gathers them again), tokens are copied after a gather and before a reduction, nothing runs beside the sum of "
        "input gradients, and pieces travel through symmetric memory; so is ring attention, whose keys are gathered "
        "first and whose sums are fp32",
    )
    whole_logits: bool = Field(
        default=False,
        description="logits are gathered over tensor-parallel ranks, each of which takes the loss of the whole "
        "vocabulary",
    )
    flash_attention: str | None = Field(description="implementation behind attention: flash; null if none")
    unpads_attention: bool = Field(
        default=False,
        description="the flash kernel is called on sequences laid end to end: queries, keys and values are gathered "
        "into that layout and the result is scattered back",
    )
    overlap: OverlapDefaults = Field(description="what overlaps by default")
    bucket_size: Bytes = Field(description="gradient bucket")
    optimizer: OptimizerCost = Field(description="the optimizer step")
    memory: MemoryOverheads = Field(description="memory besides tensors")
    servers: ParameterServers | None = Field(
        default=None, description="parameter servers; null: nothing is known of them"
    )
    step_overhead: Seconds = Field(
        description="host time per step: data, logging, scheduler, with the GPU idle"
    )
    compute_efficiency: Fraction = Field(
        default=1.0,
        description="kernel throughput of this generation's libraries relative to those calibrated on",
    )
    unaligned_batches: Fraction | None = Field(
        default=None,
        description="speed of batched products with rows that are not whole words of 16 bytes, as a fraction of the "
        "peak in fp32: this generation's library runs them without matrix units; null: it has kernels for them",
    )
    jitter: Fraction = Field(description="relative standard deviation of one rank's compute time per step")


@lru_cache(maxsize=64)
def load_software(name: str) -> SoftwareProfile:
    """The profile `name` of the catalogue (or a path). Raises DescriptionError where there is none."""
    from simulator.description import load

    profile: SoftwareProfile = load("software", name)
    return profile
