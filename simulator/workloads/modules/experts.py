"""What the experts of a mixture cost: their grouped GEMMs and the activation between them.

Every rank carries the rows of the fullest one, because all wait for it; `Operation.useful` takes the surplus (and the
padding of capacity buffers) out of the model's FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard
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
        operations = cast(self.name, "input", load.gathered * inputs, shard.gemm_dtype, shard)
        operations += cast_weights(self.name, load.groups * inputs * outputs, shard.gemm_dtype, shard)
        operations.append(self._gemm(load, load.gathered, outputs, inputs, shard, "forward"))
        if self.bias:
            operations.append(bias_add(self.name, load.gathered * outputs, shard))
        return operations

    def backward(self, shard: Shard) -> list[Operation]:
        inputs, outputs = self._shape(shard)
        load = expert_load(shard, self.num_experts, self.top_k)
        operations = cast(self.name, "output_gradient", load.gathered * outputs, shard.gemm_dtype, shard)
        operations += cast_weights(self.name, load.groups * inputs * outputs, shard.gemm_dtype, shard)
        operations.append(self._gemm(load, load.gathered, inputs, outputs, shard, "input_gradient"))
        operations += self._weight_gradient(load, inputs, outputs, shard)
        if self.bias:
            operations.append(bias_gradient(self.name, load.gathered * outputs, shard))
        return operations

    def _gemm(self, load: ExpertLoad, m: int, n: int, k: int, shard: Shard, label: str) -> Operation:
        gemm = GroupedGemm(load.groups, m, n, k, shard.gemm_dtype, imbalance=load.skew)
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


@dataclass(frozen=True, kw_only=True)
class ExpertActivation(Module):
    """silu(gate) * up on every routed row, times the row's gate value (fused with it, as Megatron does)."""

    name: str
    source: str
    width: int
    num_experts: int
    top_k: int
    group: str = "moe.activation"

    def _size(self, shard: Shard) -> float:
        rows = expert_load(shard, self.num_experts, self.top_k).gathered
        return rows * (self.width // shard.etp) * shard.bytes

    def forward(self, shard: Shard) -> list[Operation]:
        size = self._size(shard)
        if shard.fused("swiglu"):
            return [Operation(f"{self.name}.forward", MemoryBound("activation", 2 * size, size))]
        # silu, times up, times the gate value
        what = MemoryBound("activation", 4 * size, 3 * size, kernels=3)
        return [Operation(f"{self.name}.forward", what)]

    def backward(self, shard: Shard) -> list[Operation]:
        size = self._size(shard)
        if shard.fused("swiglu"):
            what = MemoryBound("activation_backward", 3 * size, 2 * size)
        else:
            what = MemoryBound("activation_backward", 8 * size, 4 * size, kernels=5)
        return [Operation(f"{self.name}.backward", what)]

    def saved(self, shard: Shard) -> list[Saved]:
        rows = expert_load(shard, self.num_experts, self.top_k).gathered
        return [Saved(self.source, 2 * self._size(shard)), Saved(f"{self.name}.gates", rows * 4.0)]

    def transient_bytes(self, shard: Shard) -> float:
        return 3 * self._size(shard)
