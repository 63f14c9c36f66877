"""How does a file of one's own measurements become the rows that a collective calibration is fitted to?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.calibration.fit_collectives import Match, Path, fit, residuals
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.store import Results
from simulator.calibration.microbenchmarks.summary import summarise
from simulator.costs.collectives import CollectiveCalibration
from simulator.validation.collective_data import Measurement

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster

BETWEEN = ("base", "network_hop", "nic")
INSIDE = ("base", "hop", "scale_up", "overlap", "local")
"""Parameters that measurements across nodes, and inside one, settle."""


@dataclass(frozen=True)
class OwnFit:
    """`error` is the mean absolute error on all rows, `holdout` that on every second size by a fit without it."""

    calibration: CollectiveCalibration
    rows: int
    error: float
    holdout: float


def measured_collectives(results: Results, cluster: Cluster, smallest: float = 0.0) -> list[Measurement]:
    """Collectives and ping-pongs of at least `smallest` bytes; rank r is GPU r of `cluster`. Medians of repeats.

    Raises ValueError for ranks that the cluster does not have, or has on fewer or more nodes than were measured.
    """
    from simulator.hardware.topology import build_topology
    from simulator.program.group_shapes import group_shapes

    topology, rows = build_topology(cluster), []
    for measurement in results.measurements:
        case = measurement.case
        op = {"collective": case.parameters.get("op", ""), "send_recv": "send_recv"}.get(case.benchmark, "")
        series = "ping_pong" if op == "send_recv" else op
        if series not in measurement.seconds or case["size"] < smallest:
            continue
        ranks = np.array([case["ranks"]], dtype=np.int64)
        if ranks.max() >= len(topology.gpu_node):
            raise ValueError(
                f"rank {ranks.max()} was measured, but the cluster has {len(topology.gpu_node)} GPUs"
            )
        (shape, *_), _ = group_shapes(topology, ranks)
        if ranks.size == results.machine.get("num_ranks"):
            _check_nodes(case, shape.num_nodes, results.machine.get("num_nodes"))
        seconds = summarise(measurement.seconds[series]).median
        dtype = case.parameters.get("dtype", "int8")
        rows.append(Measurement("own", op, dtype, shape, float(case["size"]), seconds, "tune", ""))
    return rows


def _check_nodes(case: Case, here: int, measured: int | None) -> None:
    if measured not in (None, here):
        raise ValueError(
            f"{case.parameters.get('op', case.benchmark)} over {len(case['ranks'])} ranks was measured on {measured} "
            f"nodes, but these GPUs of the cluster are on {here}; where a log used only some GPUs of each node, "
            "import it with --gpus-per-node"
        )


def fit_own(start: CollectiveCalibration, rows: Sequence[Measurement], source: str) -> OwnFit:
    """`start` with the parameters that the rows settle, and `source` with the errors as their origin.

    Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("the results hold no collectives of these sizes")
    settled = settled_by(start, rows)
    sizes = sorted({row.size for row in rows})
    left_out = set(sizes[1:-1:2])
    kept, unseen = ([row for row in rows if (row.size in left_out) == out] for out in (False, True))
    holdout = _error(fit(start, kept, settled).calibration, unseen) if unseen else float("nan")
    found = fit(start, rows, settled).calibration
    error = _error(found, rows)
    origin = (
        f"{source}; {len(rows)} medians, mean error {error:.1%}, {holdout:.1%} on sizes left out of a fit"
    )
    found = found.model_copy(
        update={"description": source, "sources": {**found.sources, "algorithms": f"fitted to {origin}"}}
    )
    return OwnFit(found, len(rows), error, holdout)


def settled_by(start: CollectiveCalibration, rows: Sequence[Measurement]) -> Match:
    """Accepts the parameters that matter to at least one of the rows."""
    used = {(name, row.group.num_nodes > 1) for row in rows for name in start.choices.get(row.op, ())}

    def accepts(path: Path) -> bool:
        if path[0] != "algorithms":
            return False
        across, inside = ((path[1], spans) in used for spans in (True, False))
        return (across and path[-1] in BETWEEN) or (inside and path[-1] in INSIDE)

    return accepts


def _error(calibration: CollectiveCalibration, rows: Sequence[Measurement]) -> float:
    return float(np.abs(np.expm1(residuals(calibration, rows))).mean())
