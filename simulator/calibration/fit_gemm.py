"""Which GEMM parameters explain measured GEMMs?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.calibration.relative_fit import (
    Array,
    Bounds,
    fit_parameters,
    relative_error,
    soft_cost,
    thinned,
)
from simulator.costs.kernels.calibration import Fit, GemmParameters, QuantizeParameters
from simulator.costs.kernels.chip import Chip
from simulator.costs.kernels.gemm import gemm_seconds
from simulator.costs.kernels.memory_bound import quantize_seconds

if TYPE_CHECKING:
    import pandas as pd

    from simulator.validation.kernel_data import Mask

SMALL_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (256, 64), (64, 256))
CUDA_CORE_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32))
"""Tile shapes of cuBLAS's products in fp32 without matrix units (sgemm), which have smaller tiles."""
TILES = {
    "volta": (*SMALL_TILES, (64, 64)),
    "ampere": SMALL_TILES,
    "ada": SMALL_TILES,
    "hopper": SMALL_TILES,
    "blackwell": (*SMALL_TILES, (256, 256)),
}
"""Tile shapes by architecture: those of cuBLAS kernels (their names in profiles), as far as the data bear them out.

Adding 256 x 256 or 192-wide tiles to the A100 raises its error from 3.7 % to 5 %; on Blackwell (pairs of SMs with
256-row tiles) 256 x 256 is needed. 64 x 64 makes every GPU from the A100 on worse: the library hardly ever picks it.
"""

BOUNDS: Bounds = {
    "efficiency": (0.3, 1.0),
    "operand_cost": (0.0, 400.0),
    "latency": (3e-7, 8e-6),
    "tile_overhead": (0.0, 1e-5),
    "epilogue": (0.0, 3.0),
    "wave_overlap": (0.0, 0.98),
    "reread": (0.0, 4.0),
    "split_overhead": (0.0, 8e-6),
    "split_traffic": (0.0, 4.0),
    "throttle": (0.0, 0.6),
    "throttle_time": (2e-4, 2e-2),
}
START = {
    "efficiency": 0.9,
    "operand_cost": 15.0,
    "latency": 2.2e-6,
    "tile_overhead": 5e-7,
    "epilogue": 0.3,
    "wave_overlap": 0.5,
    "memory_efficiency": 0.9,
    "reread": 2.0,
    "split_overhead": 2e-6,
    "split_traffic": 1.0,
    "throttle": 0.15,
    "throttle_time": 1.4e-3,
}
VALLEYS: tuple[dict[str, float], ...] = (
    {},
    {"efficiency": 0.75, "operand_cost": 2.0, "tile_overhead": 3e-8, "wave_overlap": 0.7},
    {"efficiency": 0.9, "operand_cost": 150.0, "tile_overhead": 3e-6, "wave_overlap": 0.05},
)
"""Where searches start: kernels that overlap tiles (Hopper on) and kernels that do not lie in different valleys."""
FEW = ("efficiency", "latency", "epilogue", "wave_overlap", "reread", "throttle")
"""What is refitted where there are only some hundred rows; the rest is taken over from bf16."""

QUANTIZED = {name: BOUNDS[name] for name in ("efficiency", "epilogue", "wave_overlap", "reread", "throttle")}
QUANTIZED |= {"quantize_latency": (0.0, 3e-5), "quantize_efficiency": (0.02, 1.2)}
"""What is fitted to linear layers in a narrow format, which quantise their input first."""

FIRST_ROWS, ROWS = 800, 2000  # enough to choose a valley, and to settle eleven parameters


def fit_gemm(
    rows: pd.DataFrame,
    chip: Chip,
    dtype: str,
    tiles: tuple[tuple[int, int], ...],
    also: pd.DataFrame | None = None,
) -> GemmParameters:
    """Parameters for rows with m, n, k, batch and seconds: the best of `VALLEYS` on a few rows, refined on more.

    `also` are rows that take part whole, however many the others are: batched products with a short k settle
    what large matrices leave open (reading again, epilogue).
    """
    few, more = (_some(rows, count, also) for count in (FIRST_ROWS, ROWS))
    found = [_fitted(few, chip, dtype, {**START, **valley}, BOUNDS, tiles, steps=25) for valley in VALLEYS]
    measured = few.seconds.to_numpy()
    best = min(found, key=lambda values: soft_cost(_times(few, chip, dtype, tiles, values), measured))
    values = _fitted(more, chip, dtype, best, BOUNDS, tiles, steps=40)
    return GemmParameters(tiles=tiles, **rounded(values))


def _some(rows: pd.DataFrame, count: int, also: pd.DataFrame | None) -> pd.DataFrame:
    import pandas as pd

    some = rows.iloc[thinned(len(rows), count)]
    return some if also is None else pd.concat([some, also[list(some.columns)]])


def refit_gemm(rows: pd.DataFrame, chip: Chip, dtype: str, base: GemmParameters) -> GemmParameters:
    """The parameters of another number format: `FEW` of them fitted, the others as in `base`."""
    start = base.model_dump(exclude={"tiles"})
    bounds = {name: BOUNDS[name] for name in FEW}
    return GemmParameters(
        tiles=base.tiles, **rounded(_fitted(rows, chip, dtype, start, bounds, base.tiles, steps=60))
    )


def fit_quantized(
    rows: pd.DataFrame, chip: Chip, dtype: str, base: GemmParameters
) -> tuple[GemmParameters, QuantizeParameters]:
    """Parameters of a narrow format from linear layers that quantise their m x k input; others as in `base`."""
    start = {**base.model_dump(exclude={"tiles"}), "quantize_latency": 6e-6, "quantize_efficiency": 0.4}

    def parts(values: Mapping[str, float]) -> tuple[GemmParameters, QuantizeParameters]:
        gemm: dict[str, Any] = {k: v for k, v in values.items() if not k.startswith("quantize_")}
        quantize = QuantizeParameters.model_construct(
            latency=values["quantize_latency"], efficiency=values["quantize_efficiency"]
        )
        return GemmParameters.model_construct(tiles=base.tiles, **gemm), quantize

    def predict(values: dict[str, float]) -> Array:
        return predicted_quantized(rows, chip, dtype, *parts(values))

    found = fit_parameters(predict, rows.seconds.to_numpy(), QUANTIZED, start)
    gemm, quantize = parts(rounded(found))
    return GemmParameters(**gemm.model_dump()), QuantizeParameters(**quantize.model_dump())


def predicted_quantized(
    rows: pd.DataFrame, chip: Chip, dtype: str, gemm: GemmParameters, quantize: QuantizeParameters
) -> Array:
    """Predicted seconds of every linear layer, quantisation of its input included."""
    elements = (rows.m * rows.k).to_numpy()
    result: Array = predicted(rows, chip, dtype, gemm) + quantize_seconds(elements, dtype, chip, quantize)
    return result


def _fitted(
    rows: pd.DataFrame,
    chip: Chip,
    dtype: str,
    start: Mapping[str, float],
    bounds: Bounds,
    tiles: tuple[tuple[int, int], ...],
    steps: int,
) -> dict[str, float]:
    def predict(values: dict[str, float]) -> Array:
        return _times(rows, chip, dtype, tiles, values)

    return fit_parameters(predict, rows.seconds.to_numpy(), bounds, start, steps)


def _times(
    rows: pd.DataFrame,
    chip: Chip,
    dtype: str,
    tiles: tuple[tuple[int, int], ...],
    values: Mapping[str, Any],
) -> Array:
    return predicted(rows, chip, dtype, GemmParameters.model_construct(tiles=tiles, **values))


def predicted(rows: pd.DataFrame, chip: Chip, dtype: str, parameters: GemmParameters) -> Array:
    """Predicted seconds of every row."""
    shape = (rows[name].to_numpy() for name in ("m", "n", "k"))
    return gemm_seconds(*shape, chip=chip, parameters=parameters, dtype=dtype, batch=rows["batch"].to_numpy())


def judged(
    rows: pd.DataFrame,
    chip: Chip,
    dtype: str,
    parameters: GemmParameters,
    splits: Mapping[str, Mask],
    base: GemmParameters | None = None,
    also: pd.DataFrame | None = None,
    note: str = "",
) -> Fit:
    """The fit's error, and for each split that of a fit which never saw the rows it is judged on."""
    holdout = {}
    for name, left_out in splits.items():
        seen, unseen = rows[~left_out], rows[left_out]
        other = (
            fit_gemm(seen, chip, dtype, parameters.tiles, also)
            if base is None
            else refit_gemm(seen, chip, dtype, base)
        )
        holdout[name] = relative_error(predicted(unseen, chip, dtype, other), unseen.seconds.to_numpy())
    error = relative_error(predicted(rows, chip, dtype, parameters), rows.seconds.to_numpy())
    return Fit(rows=len(rows), error=error, holdout=holdout, note=note)


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Four digits: what a calibration file carries."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def large(rows: pd.DataFrame) -> Mask:
    """Rows with m, n and k of at least 2048."""
    return np.asarray((rows.m >= 2048) & (rows.n >= 2048) & (rows.k >= 2048), bool)
