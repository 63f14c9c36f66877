"""Which parameter values make a model meet measured times best? Robust least squares on log ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bounds = Mapping[str, tuple[float, float]]

SOFT = 0.05  # ratios further off than this count linearly, so that outliers do not drag the fit
STEP = 3e-3  # of a parameter's range, for numerical derivatives: wave counts make the model rough below it


def fit_parameters(
    predict: Callable[[dict[str, float]], Array],
    measured: Array,
    bounds: Bounds,
    start: Mapping[str, float],
    steps: int = 60,
) -> dict[str, float]:
    """Values within `bounds` (name -> lowest, highest) near the best; parameters of `start` not bounded stay.

    A local search: see `best_of` where the model has several valleys. Deterministic. Raises ValueError where
    there are fewer measurements than parameters.
    """
    from scipy.optimize import least_squares

    if len(measured) < len(bounds):
        raise ValueError(f"{len(measured)} measurements cannot settle {len(bounds)} parameters")
    names = list(bounds)
    low, high = (np.array([bounds[name][side] for name in names]) for side in (0, 1))
    first = np.clip((np.array([start[name] for name in names]) - low) / (high - low), 0.01, 0.99)

    def values(unit: Array) -> dict[str, float]:
        return {**start, **dict(zip(names, (low + (high - low) * unit).tolist(), strict=True))}

    def residuals(unit: Array) -> Array:
        ratio: Array = np.log(predict(values(unit)) / measured)
        return ratio

    found = least_squares(
        residuals, first, bounds=(0, 1), loss="soft_l1", f_scale=SOFT, diff_step=STEP, max_nfev=steps
    )
    return values(found.x)


def relative_error(predicted: Array, measured: Array) -> float:
    """Mean absolute relative error."""
    return float(np.mean(np.abs(predicted / measured - 1)))


def thinned(count: int, at_most: int) -> NDArray[np.int64]:
    """At most `at_most` of `count` row numbers, spread by a fixed pseudo-random order."""
    order = np.random.default_rng(0).permutation(count)
    return np.sort(order[:at_most])


def soft_cost(predicted: Array, measured: Array) -> float:
    """What `fit_parameters` minimises, per row: quadratic near zero, linear for outliers."""
    ratio = np.log(predicted / measured) / SOFT
    return float(np.mean(np.sqrt(1 + ratio**2) - 1))
