"""Which numbers describe how one GPU runs kernels, where each came from, and how well do they hold?"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simulator.description.base import Description, Named
from simulator.description.quantities import Bytes, Seconds

NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class GemmParameters(Description):
    """Parameters of `gemm.py`, relative to datasheet rates unless a unit is given."""

    tiles: tuple[tuple[int, int], ...] = Field(
        min_length=1, description="Tile shapes the library's kernels have, rows x columns of C."
    )
    efficiency: Positive = Field(description="Of peak, in the main loop of a 256 x 128 tile.")
    operand_cost: NotNegative = Field(
        description="Elements: cost of reading operands, per product, over that of a tile with 1/tm + 1/tn = 1."
    )
    latency: Seconds = Field(description="Before the first tile starts and after the last ends.")
    tile_overhead: Seconds = Field(description="Per tile: main-loop prologue and drain.")
    epilogue: NotNegative = Field(
        description="Output bytes of a tile over its SM's share of memory bandwidth, times this."
    )
    wave_overlap: float = Field(
        ge=0, le=1, description="Part of a partial wave that does not wait for a full one."
    )
    memory_efficiency: Positive = Field(description="Achieved fraction of memory bandwidth.")
    reread: NotNegative = Field(
        description="Operand bytes that waves read beyond the first time, times this: below 1 what hits L2 is free, "
        "above 1 tiles are visited in a worse order than near-square groups."
    )
    split_overhead: Seconds = Field(description="For adding up the parts of a split k.")
    split_traffic: NotNegative = Field(description="fp32 partial results over memory bandwidth, times this.")
    throttle: NotNegative = Field(description="How much longer kernels take once power lowers the clock.")
    throttle_time: Seconds = Field(description="Duration at which half of that slow-down has set in.")


class AttentionParameters(Description):
    """Parameters of `attention.py` for one head size and direction."""

    efficiency: Positive = Field(description="Of peak, in the matrix products.")
    uneven: float = Field(
        default=1.0,
        ge=1,
        description="Time of the products of heads that are no multiple of 32, whose bounds are checked in every "
        "step, over that of the size they are padded to.",
    )
    softmax_flops: NotNegative = Field(
        description="What one score costs besides the products, in FLOPs at peak."
    )
    block: int = Field(gt=0, description="Query rows of one thread block.")
    block_overhead: Seconds = Field(description="Per thread block.")
    latency: Seconds = Field(description="Before the first block starts and after the last ends.")
    imbalance: NotNegative = Field(
        description="Part of the longest block that is exposed when the others are done."
    )
    alone: Positive = Field(
        description="Time of a block that has the GPU to itself, relative to one among many."
    )
    extra_traffic: NotNegative = Field(
        description="Passes over queries, keys, values and output beside the product (row sums, rotation, caching)."
    )
    throttle: NotNegative = Field(description="As of GEMMs.")
    throttle_time: Seconds = Field(description="As of GEMMs.")


class AttentionCalibration(Description):
    """Fused attention by head size; head sizes between take the nearest."""

    forward: dict[int, AttentionParameters] = Field(min_length=1, description="Training, by head size.")
    backward: dict[int, AttentionParameters] = Field(min_length=1, description="Training, by head size.")
    serving: dict[int, AttentionParameters] = Field(
        default_factory=dict,
        description="Forward in an inference engine, which also rotates and stores keys, by head size.",
    )
    implementations: dict[str, Positive | dict[int, Positive]] = Field(
        min_length=1,
        description="Speed of each training implementation relative to the one measured (`NAME`, and `NAME_backward` "
        "where that differs): for all head sizes, or by head size (sizes between take the nearest).",
    )


class MemoryParameters(Description):
    """Parameters of `memory_bound.py`."""

    latency: Seconds = Field(description="Per kernel: start, first loads and last stores.")
    efficiency: dict[str, Positive] = Field(
        description="Achieved fraction of memory bandwidth by operator (`NAME`, `NAME_backward`); `elementwise` "
        "stands for every operator not named. Counted on the bytes that the operator must move."
    )
    kept_row: Bytes | None = Field(
        default=None,
        description="Longest row of a norm that is still in the caches for its second reading, of longer ones as much: "
        "every SM works on some 16 rows at a time, which share the L2. null: all that is read twice counts once.",
    )


class QuantizeParameters(Description):
    """Turning 16-bit activations into a narrow format before a GEMM, scales included."""

    latency: Seconds = Field(description="All its kernels together: finding the scale, writing.")
    efficiency: Positive = Field(
        description="Of memory bandwidth, on the bytes of reading 16 bits and writing the narrow format once."
    )


class Fit(Description):
    """How well one model holds: mean absolute relative errors on the rows fitted, and on rows kept from a fit."""

    rows: int = Field(description="Measurements used.")
    error: float = Field(description="On the measurements it was fitted to.")
    holdout: dict[str, float] = Field(
        default_factory=dict,
        description="On measurements of shapes kept from the fit, by what was kept from it.",
    )
    note: str = Field(default="", description="What was measured, by whom, when.")


class KernelCalibration(Named):
    """Everything measured about how one GPU runs kernels (`hardware/calibrations/kernels/*.yaml`)."""

    kind: Literal["kernels"] = "kernels"
    description: str = Field(default="", description="What it was measured on.")
    gpu: str = Field(description="Catalogue name of the GPU measured.")
    gemm: dict[str, GemmParameters] = Field(min_length=1, description="By number format of the operands.")
    library: dict[str, Positive] = Field(
        default_factory=dict,
        description="By number format: time of products in the library that trains, relative to the kernels that "
        "`gemm` was measured on (1 where left out).",
    )
    attention: AttentionCalibration = Field(description="Fused attention.")
    memory: MemoryParameters = Field(description="Operators limited by memory.")
    quantize: dict[str, QuantizeParameters] = Field(
        default_factory=dict, description="Quantisation of activations, by number format."
    )
    fits: dict[str, Fit] = Field(
        default_factory=dict, description="By part: `gemm.bf16`, `attention.forward`..."
    )
    transferred_from: str | None = Field(
        default=None,
        description="The GPU these were measured on when they stand in for another; null: this one.",
    )

    def __hash__(self) -> int:  # cheap: equality decides, and step prediction asks millions of times
        return hash((self.name, self.transferred_from))
