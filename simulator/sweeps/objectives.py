"""What makes one plan better than another: a number of a prediction to be made small, and its bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.description.faults import KeyFaults, suggestion
from simulator.description.quantities import DIMENSIONS, parse_quantity
from simulator.results.energy import cost, power

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.results.prediction import Prediction
    from simulator.sweeps.bound import Bounds

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """`value` of a prediction is to be made small; `bound` never exceeds it. `missing` says what it lacks, or None."""

    name: str
    value: Callable[[Prediction], float]
    bound: Callable[[Cluster, Bounds], Floats]
    missing: Callable[[Cluster], str | None] = lambda cluster: None


def _energy_bound(cluster: Cluster, bounds: Bounds) -> Floats:
    """Idle power for the least step time, and what busy GPUs draw more for the least kernel time."""
    idle, full = power(cluster, 0.0) or 0.0, power(cluster, 1.0) or 0.0
    return idle * bounds.step_time + (full - idle) * bounds.kernel_seconds


def _cost_bound(cluster: Cluster, bounds: Bounds) -> Floats:
    capital = cost(cluster, None, 1.0) or 0.0
    energy = _energy_bound(cluster, bounds)
    per_joule = (cost(cluster, 1.0, 1.0) or 0.0) - capital
    return capital * bounds.step_time + per_joule * energy


def _no_power(cluster: Cluster) -> str | None:
    return None if power(cluster, 1.0) is not None else "needs the power of every GPU and node of the cluster"


def _no_price(cluster: Cluster) -> str | None:
    return None if cost(cluster, None, 1.0) is not None else "needs the price of every node of the cluster"


OBJECTIVES = {
    one.name: one
    for one in (
        Objective("step_time", lambda found: found.step_time_s, lambda cluster, bounds: bounds.step_time),
        Objective("tokens_per_dollar", lambda found: found.cost_usd or 0.0, _cost_bound, _no_price),
        Objective("tokens_per_joule", lambda found: found.energy_j or 0.0, _energy_bound, _no_power),
        Objective(
            "memory_headroom",
            lambda found: found.memory.fullest.share,
            lambda cluster, bounds: (
                bounds.peak_bytes / max(group.node.gpu.memory.total for group in cluster.node_groups)
            ),
        ),
    )
}
"""By name. The tokens of a step are the same for all plans, so dollars and joules of a step stand for their rates."""


def objective(name: str, cluster: Cluster) -> Objective:
    """Raises KeyFaults for an unknown objective, or one that the cluster has no figures for."""
    if name not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise KeyFaults(
            [("--objective", f"unknown objective {name!r}{suggestion(name, OBJECTIVES)} (known: {known})")]
        )
    missing = OBJECTIVES[name].missing(cluster)
    if missing is not None:
        raise KeyFaults([("--objective", f"{name} {missing}")])
    return OBJECTIVES[name]


OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda one, other: one <= other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
    ">": lambda one, other: one > other,
    "=": lambda one, other: one == other,
}


@dataclass(frozen=True)
class Constraint:
    """`mfu >= 0.4`, `memory.peak_bytes <= 70 GiB`: a key of the prediction's JSON object against a number."""

    key: str
    operator: str
    limit: float

    @staticmethod
    def parse(text: str, option: str = "--constraint") -> Constraint:
        """Raises KeyFaults where it is no constraint."""
        for operator in OPERATORS:
            key, found, limit = text.partition(operator)
            if found:
                return Constraint(key.strip(), operator, parse_number(limit.strip(), option, text))
        raise KeyFaults([(option, f"{text!r} needs the form KEY>=NUMBER, such as mfu>=0.4")])

    def holds(self, tree: Mapping[str, Any]) -> bool:
        return self.allows(value_of(tree, self.key))

    def allows(self, value: float) -> bool:
        return OPERATORS[self.operator](value, self.limit)

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{self.limit:g}"


def value_of(tree: Mapping[str, Any], key: str) -> float:
    """The number at a dotted key of a prediction's object. Raises KeyFaults where there is none."""
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            known = sorted(node) if isinstance(node, Mapping) else []
            hint = suggestion(part, known) or (f" (known: {', '.join(known)})" if known else "")
            raise KeyFaults([(key, f"the prediction has no {part!r}{hint}")])
        node = node[part]
    if isinstance(node, bool) or not isinstance(node, int | float):
        what = "has no value for this hardware" if node is None else "is not a number"
        raise KeyFaults([(key, what)])
    return float(node)


def parse_number(text: str, option: str, whole: str) -> float:
    """`0.45`, `45 %`, `100 Gb/s`, `70 GiB`, ... in SI. Raises KeyFaults, which blames `option`, for anything else."""
    if text.endswith("%"):
        return parse_number(text[:-1].strip(), option, whole) / 100.0
    try:
        return float(text)
    except ValueError:
        pass
    for dimension in DIMENSIONS:
        try:
            return parse_quantity(text, dimension)
        except ValueError:
            continue
    raise KeyFaults([(option, f"{whole!r}: {text!r} is no number or quantity")])
