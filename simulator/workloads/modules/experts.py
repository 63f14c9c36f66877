"""What the experts of a mixture cost: their grouped GEMMs and the activation between them.

Every rank carries the rows of the fullest one, because all wait for it; `Operation.useful` takes the surplus (and the
padding of capacity buffers) out of the model's FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
from simulator.workloads.modules.elementwise import kept_narrow, kept_size
from simulator.workloads.modules.gemms import (
    bias_add,
    bias_gradient,
    cast,
    cast_weights,
    input_element_bytes,
)
from simulator.workloads.operators import DTYPE_BYTES, GroupedGemm, MemoryBound


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Rows of one rank: routed here, `local` from its own tokens before routing, and after the etp gather.

    `tokens`: of this rank's own micro-batch that enter the mixture. `rows`: (token, expert) pairs that the fullest
    rank of the expert group receives through this rank's place in its etp group; `gathered`: with those of its etp
    peers. `useful`: mean over fullest. `skew`: fullest expert of the rank over the rank's mean.
    """

    tokens: int
    local: int
    rows: int
    gathered: int
    groups: int
    useful: float
    skew: float


def expert_load(shard: Shard, num_experts: int, top_k: int) -> ExpertLoad:
    """What one rank routes and receives for one micro-batch.

    Under sequence parallelism the tp ranks route different tokens, and the etp ranks that share an expert gather
    theirs; without it all tp ranks route the same ones.
    """
    tokens = shard.norm_tokens
    local = tokens * top_k
    full, skew = shard.routing.fullest(num_experts, shard.ep, top_k, local * shard.ep)
    rows = max(1, ceil(local * full))
    gathered = rows * shard.etp if shard.sequence_parallel else rows
    return ExpertLoad(tokens, local, rows, gathered, num_experts // shard.ep, local / rows, skew)


@dataclass(frozen=True, kw_only=True)
class ExpertLinear(Module):
    """Y_e = X_e W_e for the experts of this rank, W_e [inputs, outputs] split over etp.

    `columns`: split by outputs (the first projection), else by inputs (the second).
    """

    name: str
    source: str
    inputs: int
    outputs: int
    num_experts: int
    top_k: int
    columns: bool
    bias: bool = False
    group: str = "moe"

    def _shape(self, shard: Shard) -> tuple[int, int]:
        """(inputs, outputs) of one expert on one GPU."""
        if self.columns:
            return self.inputs, self.outputs // shard.etp
        return self.inputs // shard.etp, self.outputs

    def parameters(self, shard: Shard) -> Parameters:
        inputs, outputs = self._shape(shard)
        per_expert = inputs * outputs + (outputs if self.bias else 0)
        return Parameters(experts=self.num_experts // shard.ep * per_expert)

    def forward(self, shard: Shard) -> list[Operation]:
        inputs, outputs = self._shape(shard)
        load = expert_load(shard, self.num_experts, self.top_k)
        operations = self._cast(load, "input", inputs, shard)
        operations += cast_weights(self.name, load.groups * inputs * outputs, shard.gemm_dtype, shard)
        operations.append(self._gemm(load, load.gathered, outputs, inputs, shard, "forward"))
        if self._weighs_bias(shard):
            operations.append(self._weighed_bias(load, "bias", 14.0 * outputs, 14.0 * outputs, (2, 2)))
        elif self.bias and not shard.fused("bias"):
            operations.append(bias_add(self.name, load.gathered * outputs, shard))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        inputs, outputs = self._shape(shard)
        load = expert_load(shard, self.num_experts, self.top_k)
        operations = []
        if self._weighs_bias(shard):
            weighed = self._weighed_bias(load, "bias_backward", 24.0 * outputs, 16.0 * outputs, (6, 2))
            operations.append(weighed)
        operations += self._cast(load, "output_gradient", outputs, shard)
        operations += cast_weights(self.name, load.groups * inputs * outputs, shard.gemm_dtype, shard)
        operations.append(self._gemm(load, load.gathered, inputs, outputs, shard, "input_gradient"))
        operations += self._weight_gradient(load, inputs, outputs, shard)
        if self.bias and not self._weighs_bias(shard):
            operations.append(bias_gradient(self.name, load.gathered * outputs, shard))
        return operations

    def _cast(self, load: ExpertLoad, tensor: str, width: int, shard: Shard) -> list[Operation]:
        """Every expert's rows are made narrow on their own, unless scales are known or the GEMMs are one kernel."""
        operations = cast(self.name, tensor, load.gathered * width, shard.gemm_dtype, shard)
        if shard.scaling == "delayed":
            return operations
        return [_times(operation, _launches(load, shard)) for operation in operations]

    def _weighs_bias(self, shard: Shard) -> bool:
        """Outputs are summed over experts with the gates as weights, so their biases are weighed too."""
        return self.bias and not self.columns and not shard.fused("weighed_bias")

    def _weighed_bias(
        self, load: ExpertLoad, label: str, read: float, written: float, kernels: tuple[int, int]
    ) -> Operation:
        """Y_e + gate b_e without a fused kernel, as Megatron-Core's `TEGroupedMLP._apply_bias` does it.

        Product and sum in fp32 expert by expert, joined, and made narrow again: `read` and `written` bytes per row.
        Backward casts twice, and makes the gradients of bias and gate by a product and a sum each. `kernels`: per
        expert, and besides.
        """
        launches = kernels[0] * load.groups + kernels[1]
        what = MemoryBound("bias", load.gathered * read, load.gathered * written, launches)
        return Operation(f"{self.name}.{label}", what)

    def _gemm(self, load: ExpertLoad, m: int, n: int, k: int, shard: Shard, label: str) -> Operation:
        launches = _launches(load, shard)
        gemm = GroupedGemm(load.groups, m, n, k, shard.gemm_dtype, imbalance=load.skew, kernels=launches)
        return Operation(f"{self.name}.{label}", gemm, useful=load.useful)

    def _weight_gradient(self, load: ExpertLoad, inputs: int, outputs: int, shard: Shard) -> list[Operation]:
        """dW_e [outputs, inputs] over each expert's rows, added to the gradient buffer (in the GEMM if fused)."""
        fused = shard.accumulate_gradients and shard.fused("gradient_accumulation")
        depth = max(1, ceil(load.gathered / load.groups))
        gemm = GroupedGemm(
            load.groups,
            load.groups * outputs,
            inputs,
            depth,
            shard.gemm_dtype,
            imbalance=load.skew,
            accumulate=fused,
            kernels=_launches(load, shard),
        )
        # every expert's depth is rounded up to a whole row
        useful = load.useful * load.gathered / (depth * load.groups)
        operations = [Operation(f"{self.name}.weight_gradient", gemm, weight_gradient=True, useful=useful)]
        if shard.accumulate_gradients and not fused:
            kept, elements = DTYPE_BYTES[shard.gradient_dtype], float(load.groups * outputs * inputs)
            add = MemoryBound("gradient_add", elements * (shard.bytes + kept), elements * kept)
            operations.append(Operation(f"{self.name}.gradient_add", add, weight_gradient=True))
        return operations

    def saved(self, shard: Shard) -> list[Saved]:
        inputs, _ = self._shape(shard)
        size = input_element_bytes(shard.gemm_dtype, shard)
        return [Saved(self.source, expert_load(shard, self.num_experts, self.top_k).gathered * inputs * size)]

    def transient_bytes(self, shard: Shard) -> float:
        rows = expert_load(shard, self.num_experts, self.top_k).gathered
        return rows * sum(self._shape(shard)) * shard.bytes


def _launches(load: ExpertLoad, shard: Shard) -> int:
    """Kernels of the experts of one rank: one, or one GEMM each on several streams."""
    return 1 if shard.fused("grouped_gemm") else load.groups


def _times(operation: Operation, launches: int) -> Operation:
    """The same bytes in so many times the kernels."""
    what = operation.what
    return replace(operation, what=replace(what, kernels=launches * what.kernels))  # type: ignore[arg-type, union-attr]


@dataclass(frozen=True, kw_only=True)
class ExpertActivation(Module):
    """silu(gate) * up on every routed row, times the row's gate value (fused with it, as Megatron does).

    `clamped`: gate and up are limited first (gpt-oss), by kernels of their own. Backward is two kernels unless the
    software has one (`weighed_swiglu`): Megatron-Core compiles `weighted_swiglu_back` with PyTorch's Inductor, which
    lays both halves of the input's gradient out in one pass over all columns (`lowering.cat`) and sums the gates'
    gradients row by row in another, so that the output's gradient and the input are read twice.
    """

    name: str
    source: str
    width: int
    num_experts: int
    top_k: int
    clamped: bool = False
    group: str = "moe.activation"

    def _size(self, shard: Shard) -> float:
        rows = expert_load(shard, self.num_experts, self.top_k).gathered
        return rows * (self.width // shard.etp) * shard.bytes

    def forward(self, shard: Shard) -> list[Operation]:
        size = self._size(shard)
        operations = []
        if self.clamped:  # each half on its own, then joined
            clamp = MemoryBound("activation", 4 * size, 4 * size, kernels=3)
            operations.append(Operation(f"{self.name}.clamp", clamp))
        if shard.fused("swiglu"):
            what = MemoryBound("activation", 2 * size, size)
            operations.append(Operation(f"{self.name}.forward", what))
            return [*operations, *kept_narrow(self.name, size, shard)]
        # silu, times up, times the gate value
        what = MemoryBound("activation", 4 * size, 3 * size, kernels=3)
        return [*operations, Operation(f"{self.name}.forward", what)]

    def backward(self, shard: Shard) -> list[Operation]:
        size = self._size(shard)
        if shard.fused("swiglu") and shard.fused("weighed_swiglu"):
            what = MemoryBound("activation_backward", 3 * size, 2 * size)
        elif shard.fused("swiglu"):
            what = MemoryBound("activation_backward", 6 * size, 2 * size, kernels=2)
        else:
            what = MemoryBound("activation_backward", 8 * size, 4 * size, kernels=5)
        widened = kept_narrow(self.name, size, shard, backward=True)
        operations = [*widened, Operation(f"{self.name}.backward", what)]
        if self.clamped:
            clamp = MemoryBound("activation_backward", 6 * size, 4 * size, kernels=3)
            operations.append(Operation(f"{self.name}.clamp_backward", clamp))
        return operations

    def recomputed(self, shard: Shard) -> list[Operation]:
        return self.forward(replace(shard, gated_input_dtype=""))  # what is kept is kept already

    def saved(self, shard: Shard) -> list[Saved]:
        rows = expert_load(shard, self.num_experts, self.top_k).gathered
        kept = 2 * kept_size(self._size(shard), shard)
        return [Saved(self.source, kept), Saved(f"{self.name}.gates", rows * 4.0)]

    def transient_bytes(self, shard: Shard) -> float:
        return 3 * self._size(shard)
