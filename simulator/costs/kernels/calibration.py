"""Which numbers describe how one GPU runs kernels, where each came from, and how well they were found to hold?"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GemmParameters(_Frozen):
    """Parameters of `gemm.py`; fractions of the datasheet rates unless a unit is given."""

    tiles: tuple[tuple[int, int], ...]
    efficiency: float = Field(gt=0)  # of peak, in the main loop of an infinitely large tile
    operand_cost: float = Field(
        ge=0
    )  # elements: the tile side at which operand reads cost as much as the product
    latency: float = Field(ge=0)  # seconds before the first tile and after the last
    tile_overhead: float = Field(ge=0)  # seconds per tile: prologue of the main loop, pipeline drain
    epilogue: float = Field(
        ge=0
    )  # output bytes of a tile over the SM's share of memory bandwidth, times this
    wave_overlap: float = Field(ge=0, le=1)  # part of a partial wave that does not wait for a full one
    power_limit: float = Field(gt=0)  # fraction of peak above which the clock falls
    memory_efficiency: float = Field(gt=0)
    reread: float = Field(ge=0)  # of the operand bytes that each wave reads again, the part that misses in L2
    split_overhead: float = Field(ge=0)  # seconds: reducing the parts of k
    split_traffic: float = Field(ge=0)  # fp32 partial results over memory bandwidth, times this


class AttentionParameters(_Frozen):
    """Parameters of `attention.py`, one set for the forward and one for the backward pass."""

    efficiency: float = Field(gt=0)  # of peak in the matrix products
    softmax_flops: float = Field(ge=0)  # what one score costs outside them, in FLOPs at peak rate
    block: int = Field(gt=0)  # query rows of one thread block
    block_overhead: float = Field(ge=0)  # seconds per thread block
    latency: float = Field(ge=0)  # seconds
    imbalance: float = Field(ge=0)  # of the longest block, exposed at the end
    extra_traffic: float = Field(ge=0)  # passes over q, k, v and the output besides the product itself


class MemoryParameters(_Frozen):
    """Parameters of `memory_bound.py`."""

    latency: float = Field(ge=0)  # seconds per kernel
    efficiency: dict[str, float]  # achieved fraction of memory bandwidth by class of operator
    ramp: float = Field(ge=0)  # seconds of full bandwidth lost while filling and draining the memory pipeline


class Fit(_Frozen):
    """How well one model fits the measurements it came from, and ones it never saw (mean absolute fractions)."""

    rows: int
    error: float
    holdout: dict[str, float] = {}  # by kind of split
    split: str = ""
    data: str = ""


class KernelCalibration(_Frozen):
    """Everything measured about how one GPU runs kernels (`hardware/calibrations/kernels/*.yaml`)."""

    kind: Literal["kernels"] = "kernels"
    name: str
    gemm: dict[str, GemmParameters]  # by number format
    attention: dict[str, AttentionParameters]  # "forward", "backward"
    memory: MemoryParameters
    transferred_from: str | None = None
    origins: dict[str, str] = {}  # key path prefix -> where the numbers come from
    fits: dict[str, Fit] = {}

    def __hash__(self) -> int:  # dicts do not hash; the name is enough to spread, equality decides
        return hash((self.name, self.transferred_from))
