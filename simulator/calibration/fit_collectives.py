"""Which parameters of a collective calibration explain measured collectives best: least squares on log times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.costs.collectives import CollectiveCalibration, collective_cost, collective_seconds
from simulator.validation.collective_data import Measurement, measurements, systems

FloatArray = npt.NDArray[np.float64]

BOUNDS = {
    "base": (1e-7, 1e-2),
    "hop": (1e-7, 1e-3),
    "network_base": (1e-7, 1e-2),
    "network_hop": (1e-7, 1e-2),
    "network_trips": (0.5, 10.0),
    "multi_node_hop": (1e-7, 1e-3),
    "hop_latency": (1e-7, 1e-2),
    "scale_up": (1e-3, 1.0),
    "nic": (1e-3, 1.0),
    "overlap": (0.5, 4.0),
    "local": (0.05, 5.0),
    "crowding": (0.05, 4.0),
    "host_cached": (1.0, 3.0),
    "network_overlap": (0.5, 4.0),
}
"""Parameter name → range in which it is sought."""

FACTOR_BOUNDS = (0.3, 1.5)
PRIOR = 0.02
"""Weight of staying near the starting value (per unit of log), which settles what no measurement touches."""


Path = tuple[str, ...]
Match = Callable[[Path], bool]


INSIDE = ("base", "hop", "scale_up", "overlap", "local", "crowding", "host_cached")
"""Parameters that groups within one node settle."""

BETWEEN = ("network_base", "network_trips", "nic")
"""Parameters that groups across nodes settle; hops between nodes keep what the library's own model states."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted parameters; `hop_latencies` are those of the machines whose network was fitted along."""

    calibration: CollectiveCalibration
    hop_latencies: dict[str, float]


def inside_a_node(path: Path) -> bool:
    """Whether single-node measurements settle the parameter: not trees, nor single messages, nor the network."""
    if path[0] == "algorithms":
        return path[1] in ("ring", "direct", "in_network") and path[-1] in INSIDE
    return path[-1] in INSIDE and path[1:2] not in (("broadcast",), ("reduce",))


def between_nodes(path: Path) -> bool:
    """Whether measurements across nodes settle the parameter (all-to-all and single messages have none).

    LL waits for the network once per hop by definition: that is what a machine's hop latency means. What a ring
    pays once cannot be told from that latency where both are unknown, and keeps what trees pay.
    """
    if path[-2:] == ("ll", "network_trips") or path[1:2] + path[-1:] == ("ring", "network_base"):
        return False
    if path[0] == "algorithms":
        return path[1] in ("ring", "tree", "in_network") and path[-1] in BETWEEN
    return path == ("network_overlap",)


def fit_calibration(start: CollectiveCalibration, leave_out_ranks: int | None = None) -> Fit:
    """Fit a calibration to the tune rows of all machines that it stands for: first inside a node, then between.

    `leave_out_ranks` keeps groups of that many ranks out, to be judged on. Raises ValueError without tune rows.
    """
    ours = {name: system for name, system in systems().items() if system.calibration == start.name}
    rows = [
        row
        for row in measurements(ours)
        if row.split == "tune"
        and row.group.num_ranks != leave_out_ranks
        and row.op not in ("broadcast", "reduce")
    ]
    if not rows:
        raise ValueError(f"nothing was measured for {start.name}")
    inside = [row for row in rows if row.group.num_nodes == 1]
    found = fit(start, inside, inside_a_node) if inside else Fit(start, {})
    across = [row for row in rows if row.group.num_nodes > 1 and ours[row.system].fit_network]
    if across:
        known = {name: system.hop_latency for name, system in ours.items() if system.fit_hop_latency}
        found = fit(found.calibration, across, between_nodes, known, rounds=1)
    return found


def fit(
    start: CollectiveCalibration,
    rows: Sequence[Measurement],
    fitted: Match = lambda path: True,
    hop_latencies: dict[str, float] | None = None,
    rounds: int = 3,
) -> Fit:
    """Refine the latencies and rates of `start` whose path `fitted` accepts, to match `rows`.

    `hop_latencies` are machines of `rows` whose network latency is unknown, with a first guess. Every round starts
    where the one before ended, and is pulled towards there.
    """
    found = Fit(start, dict(hop_latencies or {}))
    for _ in range(rounds):
        found = fitted_parameters(found, rows, fitted)
    return found


def on_networks(rows: Sequence[Measurement], hop_latencies: dict[str, float]) -> list[Measurement]:
    """The rows with the network latency of their machine replaced where one is given."""
    return [
        replace(row, group=replace(row.group, hop_latency=hop_latencies[row.system]))
        if row.system in hop_latencies and row.group.num_nodes > 1
        else row
        for row in rows
    ]


def predicted(calibration: CollectiveCalibration, row: Measurement) -> float:
    """Seconds of one measured collective as the model has it."""
    return collective_seconds(collective_cost(row.op, row.size, row.group, calibration), row.group)


def residuals(calibration: CollectiveCalibration, rows: Sequence[Measurement]) -> FloatArray:
    """[rows] log(predicted / measured), with the algorithm that a row's machine was forced to, if any."""
    here = {row.system for row in rows}
    forcing = {name: system for name, system in systems().items() if name in here and system.all_reduce}
    used = {name: system.library(calibration) for name, system in forcing.items()}
    return np.array([log(predicted(used.get(row.system, calibration), row) / row.seconds) for row in rows])


def free_parameters(calibration: CollectiveCalibration, fitted: Match) -> dict[Path, float]:
    """Path → value of every continuous parameter that `fitted` accepts."""
    found: dict[Path, float] = {}
    for algorithm, protocols in calibration.algorithms.items():
        for protocol, rates in protocols.items():
            for name in (
                "base",
                "hop",
                "network_base",
                "network_hop",
                "network_trips",
                "multi_node_hop",
                "scale_up",
                "nic",
                "overlap",
            ):
                if name != "overlap" or protocol == "simple":
                    found["algorithms", algorithm, protocol, name] = getattr(rates, name) or 0.0
    for op, factors in calibration.operations.items():
        for name in ("scale_up", "nic", "local"):
            found["operations", op, name] = getattr(factors, name) or 0.0
    found["crowding",] = calibration.crowding
    if calibration.host_cache is not None:
        found["host_cached",] = calibration.host_cached
    if calibration.network_overlap != 1.0:
        found["network_overlap",] = calibration.network_overlap
    return {path: value for path, value in found.items() if value > 0.0 and fitted(path)}


def with_parameters(calibration: CollectiveCalibration, values: dict[Path, float]) -> CollectiveCalibration:
    """A copy with the parameters at these paths replaced."""
    tree: dict[str, Any] = {}
    own = {path[0]: value for path, value in values.items() if len(path) == 1}
    for (head, *rest), value in ((path, v) for path, v in values.items() if len(path) > 1):
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
    return calibration.model_copy(update={"algorithms": algorithms, "operations": operations, **own})


def bounds(path: Path) -> tuple[float, float]:
    """Range of the parameter at `path`."""
    if path[0] == "operations" and path[-1] in ("scale_up", "nic"):
        return FACTOR_BOUNDS
    return BOUNDS[path[-1]]


def fitted_parameters(start: Fit, rows: Sequence[Measurement], fitted: Match) -> Fit:
    """The continuous parameters by trust-region least squares in log space, soft in the tails (outliers)."""
    from scipy.optimize import least_squares

    values = free_parameters(start.calibration, fitted)
    values |= {("systems", system, "hop_latency"): value for system, value in start.hop_latencies.items()}
    low, high = (np.log([bounds(path)[side] for path in values]) for side in (0, 1))
    first = np.clip(np.log(list(values.values())), low + 1e-6, high - 1e-6)

    def at(x: FloatArray) -> Fit:
        named = dict(zip(values, np.exp(x).tolist(), strict=True))
        networks = {path[1]: named.pop(path) for path in values if path[0] == "systems"}
        return Fit(with_parameters(start.calibration, named), networks)

    def errors(x: FloatArray) -> FloatArray:
        candidate = at(x)
        here = on_networks(rows, candidate.hop_latencies)
        return np.concatenate([residuals(candidate.calibration, here), PRIOR * (x - first)])

    solution = least_squares(
        errors, first, bounds=(low, high), loss="soft_l1", f_scale=0.06, diff_step=1e-3, max_nfev=60
    )
    return at(solution.x)
