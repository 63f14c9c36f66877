"""Which parameters of a collective calibration explain measured collectives best: least squares on log times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.costs.collectives import CollectiveCalibration, collective_cost, collective_seconds
from simulator.validation.collective_data import Measurement

FloatArray = npt.NDArray[np.float64]

BOUNDS = {
    "base": (1e-7, 1e-2),
    "hop": (1e-9, 1e-3),
    "network_hop": (1e-8, 1e-2),
    "scale_up": (1e-3, 1.0),
    "nic": (1e-3, 1.0),
    "overlap": (0.4, 4.0),
    "local": (0.05, 5.0),
}
"""Parameter name → range in which it is sought."""

FACTOR_BOUNDS = (0.3, 1.5)
PRIOR = 0.02
"""Weight of staying near the starting value (per unit of log), which settles what no measurement touches."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted parameters, and mean absolute percentage errors on the rows fitted and on those left out."""

    calibration: CollectiveCalibration
    error: float
    error_left_out: float | None


def fit(
    start: CollectiveCalibration, rows: Sequence[Measurement], left_out: Sequence[Measurement] = ()
) -> Fit:
    """Refine every latency and rate of `start`, and where the tuner changes protocol, to match `rows`.

    Alternates a robust least-squares fit of the continuous parameters with a scan of the switch sizes.
    """
    calibration = start
    for _ in range(3):
        calibration = fitted_switches(calibration, rows)
        calibration = fitted_parameters(calibration, rows)
    error = float(np.mean(np.abs(np.expm1(residuals(calibration, rows)))))
    others = float(np.mean(np.abs(np.expm1(residuals(calibration, left_out))))) if left_out else None
    return Fit(calibration, error, others)


def predicted(calibration: CollectiveCalibration, row: Measurement) -> float:
    """Seconds of one measured collective as the model has it."""
    return collective_seconds(collective_cost(row.op, row.size, row.group, calibration), row.group)


def residuals(calibration: CollectiveCalibration, rows: Iterable[Measurement]) -> FloatArray:
    """[rows] log(predicted / measured)."""
    return np.array([log(predicted(calibration, row) / row.seconds) for row in rows])


def free_parameters(calibration: CollectiveCalibration, network: bool) -> dict[tuple[str, ...], float]:
    """Path → value of every continuous parameter; those of the network only if `network`."""
    found: dict[tuple[str, ...], float] = {}
    for algorithm, protocols in calibration.algorithms.items():
        for protocol, rates in protocols.items():
            for name in ("base", "hop", "scale_up", "overlap", *(("network_hop", "nic") if network else ())):
                if name != "overlap" or protocol == "simple":
                    found["algorithms", algorithm, protocol, name] = getattr(rates, name)
    for op, factors in calibration.operations.items():
        for name in ("scale_up", "local"):
            if getattr(factors, name) is not None:
                found["operations", op, name] = getattr(factors, name)
    return {path: value for path, value in found.items() if value > 0.0}


def with_parameters(
    calibration: CollectiveCalibration, values: dict[tuple[str, ...], float]
) -> CollectiveCalibration:
    """A copy with the parameters at these paths replaced."""
    tree: dict[str, Any] = {}
    for (head, *rest), value in values.items():
        tree.setdefault(head, {}).setdefault(tuple(rest[:-1]), {})[rest[-1]] = value
    algorithms = {
        name: {
            protocol: rates.model_copy(update=tree.get("algorithms", {}).get((name, protocol), {}))
            for protocol, rates in protocols.items()
        }
        for name, protocols in calibration.algorithms.items()
    }
    operations = {
        op: factors.model_copy(update=tree.get("operations", {}).get((op,), {}))
        for op, factors in calibration.operations.items()
    }
    return calibration.model_copy(update={"algorithms": algorithms, "operations": operations})


def bounds(path: tuple[str, ...]) -> tuple[float, float]:
    """Range of the parameter at `path`."""
    if path[0] == "operations" and path[-1] != "local":
        return FACTOR_BOUNDS
    return BOUNDS[path[-1]]


def fitted_parameters(
    calibration: CollectiveCalibration, rows: Sequence[Measurement]
) -> CollectiveCalibration:
    """The continuous parameters by trust-region least squares in log space, soft in the tails (outliers)."""
    from scipy.optimize import least_squares

    start = free_parameters(calibration, network=any(row.group.num_nodes > 1 for row in rows))
    paths = list(start)
    low, high = (np.log([bounds(path)[side] for path in paths]) for side in (0, 1))
    first = np.clip(np.log(list(start.values())), low + 1e-6, high - 1e-6)

    def errors(x: FloatArray) -> FloatArray:
        candidate = with_parameters(calibration, dict(zip(paths, np.exp(x).tolist(), strict=True)))
        return np.concatenate([residuals(candidate, rows), PRIOR * (x - first)])

    solution = least_squares(
        errors, first, bounds=(low, high), loss="soft_l1", f_scale=0.06, diff_step=1e-3, max_nfev=60
    )
    return with_parameters(calibration, dict(zip(paths, np.exp(solution.x).tolist(), strict=True)))


def fitted_switches(calibration: CollectiveCalibration, rows: Sequence[Measurement]) -> CollectiveCalibration:
    """For every operation and group size with a switch, the size between two measured ones that fits best."""
    switches = {op: dict(by_ranks) for op, by_ranks in calibration.switches.items()}
    for op, by_ranks in switches.items():
        for ranks in by_ranks:
            ours = [row for row in rows if row.op == op and row.group.num_ranks == ranks]
            sizes = sorted({row.size for row in ours})
            best = None
            for below, above in pairwise(sizes):
                by_ranks[ranks] = sqrt(below * above)
                candidate = calibration.model_copy(update={"switches": {**switches, op: by_ranks}})
                error = float(np.sum(np.abs(residuals(candidate, ours))))
                if best is None or error < best[0]:
                    best = error, by_ranks[ranks]
            if best is not None:
                by_ranks[ranks] = best[1]
    return calibration.model_copy(update={"switches": switches})
