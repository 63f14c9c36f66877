"""How a model is spread over GPUs: degrees, schedule, sharding, recomputation, overlap, software."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from simulator.description.base import Description, Named
from simulator.description.quantities import Bytes, BytesPerSecond, Fraction, Seconds
from simulator.workloads.fully_sharded import FullySharded
from simulator.workloads.stage_degrees import StageDegrees
from simulator.workloads.synchronisation import Synchronisation

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
StateType = Literal["fp32", "bf16", "fp16"]
ParameterType = Literal["fp32", "bf16", "fp16", "fp8"]
Axis = Literal["tp", "cp", "dp", "pp"]
Fusion = Literal[
    "qkv",
    "gate_up",
    "bias",
    "bias_gelu",
    "bias_dropout_add",
    "masked_softmax",
    "norm",
    "rope",
    "scaled_rope",
    "swiglu",
    "cross_entropy",
    "cross_entropy_fp32",
    "narrow_log_softmax",
    "log_softmax",
    "router",
    "permute",
    "grouped_gemm",
    "weighed_bias",
    "weighed_swiglu",
    "norm_cast",
    "narrow_gather",
    "residual_norm",
    "gradient_accumulation",
]
AXES: tuple[Axis, ...] = ("tp", "cp", "dp", "pp")


class Overlap(Description):
    """What runs at the same time as compute; null: as the software does by default."""

    dp_gradients: bool | None = Field(
        default=None, description="Reduce gradient buckets behind the last backward."
    )
    dp_parameters: bool | None = Field(
        default=None, description="Gather updated parameters behind the next forward."
    )
    tp: bool | Literal["pipelined"] | None = Field(
        default=None,
        description="Tensor-parallel collectives beside independent GEMMs of backward; `pipelined`: GEMMs "
        "are also cut into pieces that overlap their own collective (asynchronous tensor parallelism).",
    )
    pp: bool | None = Field(default=None, description="Pipeline sends and receives behind compute.")
    ep: bool = Field(
        default=False,
        description="Exchanges of tokens with the experts of one micro-batch behind the computation of another: a "
        "forward and a backward run side by side (needs pp: 1, vpp > 1 or schedule: dualpipe, dualpipe-v).",
    )
    shared_expert: bool = Field(
        default=False, description="The shared expert computes while tokens travel to the others and back."
    )
    steps: bool = Field(
        default=False,
        description="A stage goes on to the next step while others finish this one; the gradient norm is checked "
        "afterwards (optimizer post-validation, Qi et al. 2024). The step time is then that of the steady state.",
    )


class Experts(Description):
    """How tokens reach the experts of a mixture, and how evenly."""

    tp: int | None = Field(
        default=None,
        gt=0,
        description="GPUs that split one expert; as many as split other layers if left out.",
    )
    load: Literal["balanced", "random", "zipf", "dirichlet"] = Field(
        default="balanced",
        description="How tokens fall on experts: evenly; every choice drawn at random; Zipf, the i-th expert with a "
        "share ~ 1/i^skew; shares from a Dirichlet distribution of concentration skew.",
    )
    skew: float = Field(default=1.0, gt=0, description="Exponent of zipf, concentration of dirichlet.")
    seed: int = Field(default=0, ge=0, description="Of the draw.")
    capacity: float | None = Field(
        default=None,
        gt=0,
        description="Rows of each expert's buffer over an even share; what exceeds it is dropped, what is short of it "
        "padded. Nothing is dropped if left out.",
    )
    deduplicated: bool = Field(
        default=False,
        description="Send a token once to each GPU that holds any of its experts (as DeepEP does), not per expert.",
    )
    domain: int | None = Field(
        default=None,
        gt=0,
        description="GPUs of an expert group that share a node: a token crosses to another node once for all its "
        "experts there and is handed on inside (DeepEP, HybridEP). Nodes make no difference if left out.",
    )
    exchange_sms: int | None = Field(
        default=None,
        gt=0,
        description="SMs that exchanges hold and that products beside them keep off (DeepEP's and DeepGEMM's num_sms); "
        "exchanges slow kernels as the library's collectives do if left out.",
    )
    dispatch_dtype: Literal["bf16", "fp16", "fp8"] | None = Field(
        default=None, description="Type in which tokens travel to experts; that of activations if left out."
    )


class WideEnds(Description):
    """Blocks at the ends of the model whose products run in the activation type beside narrower ones."""

    first: int = Field(default=0, ge=0, description="Blocks at the beginning.")
    last: int = Field(default=0, ge=0, description="Blocks at the end.")


class Offload(Description):
    """What is kept in host memory or on the host's disks instead of on the GPU."""

    optimizer: Literal["none", "cpu", "swap"] = Field(
        default="none",
        description="Optimizer state off the GPU: cpu: the host's CPU updates it (ZeRO-Offload); swap: it comes to the "
        "GPU for the update and goes out again.",
    )
    optimizer_tier: Literal["host", "nvme"] = Field(
        default="host", description="Where that state rests; nvme: on the node's disks (ZeRO-Infinity)."
    )
    parameters: Literal["none", "host", "nvme"] = Field(
        default="none", description="Where ZeRO-3's shards of parameters rest between gathers."
    )
    activations: Fraction = Field(
        default=0.0,
        description="Of the bytes that blocks keep for backward, the part that waits in host memory.",
    )
    choice: Literal["each", "longest"] = Field(
        default="each",
        description="Which activations that part is: the same part of what each block keeps; or what is kept longest, "
        "of the first blocks (lifetime analysis, LMS).",
    )
    prefetch: int = Field(
        default=1,
        ge=0,
        description="Layers whose activations may come back before the one that runs backward.",
    )


class DealingCosts(Description):
    """What is expected of a group of `width` GPUs, as FlexSP puts it (Wang et al. 2025, equations 12 and 13).

    (quadratic x length^2 + linear x length) / width + exchanged x length / (width x bandwidth[width]), summed over its
    documents, + fixed.
    """

    quadratic: Seconds = Field(description="Compute per token of a document and token that it attends to.")
    linear: Seconds = Field(description="Compute per token.")
    fixed: Seconds = Field(description="Of a micro-batch, whatever it holds.")
    exchanged: Bytes = Field(
        description="What one token's heads send in all layers, forward and backward together."
    )
    bandwidth: dict[int, BytesPerSecond] = Field(
        description="Bytes/s per GPU of that exchange in groups of so many GPUs."
    )


class Dealing(Description):
    """How documents go to groups of GPUs that share them (`data.packing: dealt`)."""

    groups: Literal["static", "adaptive", "mixed"] = Field(
        default="mixed",
        description="static: groups of cp GPUs; adaptive: of as many as is best for the step, up to cp; mixed: of "
        "several widths side by side, up to cp (FlexSP).",
    )
    rule: Literal["balanced", "best_fit"] = Field(
        default="balanced",
        description="Which documents a group gets: balanced: those with which no group of the micro-batch takes long; "
        "best_fit: as many as it has room for, the longest first (not for mixed groups).",
    )
    tokens_per_gpu: int | None = Field(
        default=None,
        gt=0,
        description="Most tokens of a micro-batch on each GPU; as many as its memory holds if left out.",
    )
    costs: DealingCosts | None = Field(
        default=None,
        description="What the dealing expects of a group; what its kernels and exchanges are simulated to take if left "
        "out.",
    )


class Plan(Named):
    """Ranks = tp (x tp_x x tp_z) x cp x dp x pp; ep and the tp of experts divide the plane of tp, cp and dp."""

    kind: Literal["plan"] = Field(default="plan", description="Always `plan`.")
    tp: int = Field(default=1, gt=0, description="Tensor parallelism: GPUs that split every layer.")
    tp_x: int = Field(
        default=1,
        gt=0,
        description="Second dimension of tensor parallelism (AxoNN's X; tp is its Y): splits the width of the residual "
        "stream.",
    )
    tp_z: int = Field(
        default=1,
        gt=0,
        description="Third dimension of tensor parallelism (AxoNN's Z): splits the samples of a micro-batch and shares "
        "out the weights.",
    )
    pp: int = Field(default=1, gt=0, description="Pipeline parallelism: stages that split the layers.")
    vpp: int = Field(default=1, gt=0, description="Model chunks per stage (interleaved schedule).")
    cp: int = Field(default=1, gt=0, description="Context parallelism: GPUs that split every sequence.")
    ep: int = Field(default=1, gt=0, description="Expert parallelism: GPUs that share out the experts.")
    experts: Experts = Field(default=Experts(), description="How tokens reach experts, and how evenly.")
    dp: int | None = Field(
        default=None, gt=0, description="Data parallelism; the GPUs left over if left out."
    )
    order: tuple[Axis, ...] = Field(
        default=AXES, description="Axes of the rank grid from neighbouring ranks outwards."
    )
    micro_batch: int = Field(default=1, gt=0, description="Samples that one replica runs at a time.")
    schedule: str | None = Field(
        default=None,
        description="Pipeline schedule, or a file of PyTorch's format (schedule.csv); 1f1b, or interleaved where "
        "vpp > 1, if left out.",
    )
    layers_per_stage: tuple[int, ...] | Literal["auto"] | None = Field(
        default=None,
        description="Blocks of each stage, or virtual stage in order; auto: as even in time as embedding and head "
        "allow; an even split if left out.",
    )
    stages: tuple[StageDegrees, ...] = Field(
        default=(),
        description="tp and dp of each pipeline stage where they differ, instead of plan.tp and plan.dp. A micro-batch "
        "has as many samples at every stage: micro_batch on each replica of the stage with the most, and more on those "
        "of others.",
    )
    replica_batches: Literal["even", "proportional", "balanced"] | tuple[int, ...] = Field(
        default="even",
        description="Micro-batches of each data-parallel replica: as many for all; by the peak of their GPUs; so that "
        "the last finishes as early as can be; or as listed (virtual nodes). Uneven ones add up to the global batch.",
    )
    synchronisation: Synchronisation = Field(
        default=Synchronisation(), description="How data-parallel replicas agree, and what they exchange."
    )
    sequence_parallel: bool = Field(
        default=False,
        description="Split norms, dropout and residuals over tp by tokens (Korthikanti et al. 2022).",
    )
    scatter_gather: bool | None = Field(
        default=None,
        description="Cut pipeline boundary tensors over tp for the way and gather them on arrival (Narayanan et al. "
        "2021); null: as the software does. Without effect under sequence_parallel, whose tensors are cut already.",
    )
    context_exchange: Literal["ring", "all_gather", "all_to_all", "usp"] = Field(
        default="ring",
        description="How context parallelism brings keys and values to queries (all_to_all: Ulysses; usp: all-to-all "
        "inside groups of `ulysses` GPUs, a ring between the groups).",
    )
    context_layout: Literal["zigzag", "contiguous"] = Field(
        default="zigzag",
        description="Which tokens a context-parallel GPU holds: two blocks that balance causal attention, or one, so "
        "that the last GPU works longest.",
    )
    ulysses: int | None = Field(
        default=None,
        gt=0,
        description="GPUs of cp that exchange heads for tokens, for context_exchange: usp.",
    )
    dealing: Dealing = Field(
        default=Dealing(), description="How documents go to groups of GPUs, for data.packing: dealt."
    )
    zero: Literal[0, 1, 2, 3] = Field(
        default=0,
        description="What dp ranks share out: 1 optimizer state, 2 and gradients, 3 and parameters.",
    )
    zero3: FullySharded = Field(default=FullySharded(), description="How ZeRO-3 gathers parameters.")
    scaling: Literal["delayed", "current", "row", "block"] | None = Field(
        default=None,
        description="How fp8 tensors are scaled: by what earlier steps found, by their own largest value, by that of "
        "every row (torchao's rowwise), or by block; delayed for fp8 and block for mxfp8 and nvfp4 if left out.",
    )
    wide_ends: WideEnds = Field(
        default=WideEnds(),
        description="Blocks whose products stay in the activation type where others are fp8, mxfp8 or nvfp4.",
    )
    offload: Offload = Field(default=Offload(), description="What is kept off the GPU.")
    table_memory: Literal["hbm", "host", "near_memory"] = Field(
        default="hbm",
        description="Where embedding tables rest that ep deals out: on the GPU; in host memory, from which every row "
        "comes over the host link; or in host memory that adds up rows itself (TensorDIMM), so that only sums do.",
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="none", description="What backward computes again: nothing, some modules, or whole layers."
    )
    recompute_modules: tuple[str, ...] = Field(
        default=("core_attention",),
        description="Groups of modules that selective recomputation reruns: core_attention, norm, mlp, mlp_activation, "
        "latent_up, moe, moe.activation, moe.shared, as the model has them; alternate_matmul: every other matrix "
        "product of a block (torchtitan, with norm and mlp_activation).",
    )
    recompute_layers: int | None = Field(
        default=None, ge=0, description="Blocks per stage to which recompute applies; all if left out."
    )
    attention: Literal["flash", "unfused"] = Field(
        default="flash", description="One fused kernel (the software's version), or scores kept in memory."
    )
    cuda_graphs: tuple[Literal["attention", "mlp", "router", "all"], ...] = Field(
        default=(),
        description="Parts of blocks that the host launches as one captured graph: attention with its norm and "
        "residual; mlp, of blocks without experts; router, of a mixture all before the dispatch and the shared expert; "
        "all, whole blocks (experts then need `experts.capacity`).",
    )
    unfused: tuple[Fusion, ...] = Field(
        default=(),
        description="Fused kernels that the software has and this plan does without: rope, router, permute, ... (as in "
        "its `fusions`).",
    )
    optimizer: Literal["adam", "sgd", "momentum"] = Field(default="adam", description="Update rule.")
    optimizer_dtype: Literal["fp32", "bf16", "int8"] = Field(
        default="fp32", description="Type of the moments."
    )
    gated_input_dtype: Literal["fp8"] | None = Field(
        default=None,
        description="Type in which the inputs of fused gated activations (SwiGLU) are kept for backward, by casts of "
        "their own (Megatron-Core's activation_func_fp8_input_store; DeepSeek-V3); that of activations if left out.",
    )
    parameter_dtype: ParameterType | None = Field(
        default=None,
        description="Type of resting parameters; if left out the activation type, fp32 under zero 3 (FSDP). fp8: the "
        "matrices of blocks rest as their GEMMs read them, all else in the activation type.",
    )
    transposed_weights: bool = Field(
        default=True,
        description="Keep a second copy of narrow weights, the other way round for backward; else it is made anew "
        "before each use.",
    )
    master_weights: bool | None = Field(
        default=None,
        description="Keep an fp32 copy for the update; yes if parameters rest in 16 bits, if left out.",
    )
    gradient_dtype: StateType | None = Field(
        default=None,
        description="Type in which gradients are summed and reduced; if left out fp32 for bf16 and "
        "narrower, else the compute type.",
    )
    bucket_size: Bytes | None = Field(
        default=None, description="Gradient bucket; the software's if left out."
    )
    overlap: Overlap = Field(default=Overlap(), description="What runs behind compute.")
    vocab_multiple: int = Field(
        default=128,
        gt=0,
        description="The vocabulary is padded to a multiple of this times tp; 1: not padded.",
    )
    software: str = Field(
        default="megatron-2022", description="Runtime profile: launch cost, fusions, overheads."
    )

    @field_validator("tp", "cp", "dp", mode="before")
    @classmethod
    def _one_degree_for_all_stages(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            raise ValueError("needs one number; degrees that differ by pipeline stage are plan.stages")
        return value

    @property
    def num_ranks(self) -> int | None:
        """GPUs of the job; None where as many replicas as there is room for."""
        if self.stages:
            return self.cp * sum(stage.tp * stage.dp for stage in self.stages)
        return None if self.dp is None else self.model_ranks * self.dp

    @property
    def model_ranks(self) -> int:
        """GPUs of one replica, where all stages have as many."""
        return self.tensor_ranks * self.cp * self.pp

    @property
    def tensor_ranks(self) -> int:
        """GPUs that split every layer, over all dimensions."""
        return self.tp * self.tp_x * self.tp_z

    @property
    def expert_tp(self) -> int:
        """GPUs that split one expert."""
        return self.tp if self.experts.tp is None else self.experts.tp

    @property
    def schedule_name(self) -> str:
        if self.schedule is not None:
            return self.schedule
        return "interleaved" if self.vpp > 1 else "1f1b"

    @property
    def separates_ends(self) -> bool:
        """Whether the first and the last layers stand on different GPUs."""
        from simulator.program.schedules import find_schedule

        schedule = find_schedule(self.schedule_name)
        return self.pp > 1 and (schedule is None or not schedule.placement(self.pp, self.vpp).ends_meet)

    def data_parallel(self, num_gpus: int) -> int:
        """dp as given, or the GPUs left over (1 at least; `check_ranks` says when the product is wrong)."""
        return self.dp if self.dp is not None else max(1, num_gpus // self.model_ranks)

    def contributing(self, num_gpus: int) -> int:
        """Replicas whose gradients enter a step."""
        backup = self.synchronisation.backup if self.synchronisation.scheme == "backup" else 0
        return max(1, self.data_parallel(num_gpus) - backup)
