"""What collectives cost: one file per algorithm, and the choice among them as a library makes it.

Contents: group (shapes, costs), patterns (edges of many groups), traffic (who sends what to whom), algorithm (the
table), ring, tree, halving_doubling, hierarchical, in_network, direct, point_to_point, gloo_ring, gloo_broadcast,
gloo_all_to_all, library (calibrated parameters), tuning (protocols by NCCL's own model), choice (among them), selection
(of the library).
"""

from simulator.costs.collectives import (  # noqa: F401  (registration)
    direct,
    gloo_all_to_all,
    gloo_broadcast,
    gloo_ring,
    halving_doubling,
    hierarchical,
    in_network,
    point_to_point,
    ring,
    traffic,
    tree,
)
from simulator.costs.collectives.algorithm import ALGORITHMS
from simulator.costs.collectives.choice import collective_cost, collective_seconds
from simulator.costs.collectives.group import CollectiveCost, GroupShape
from simulator.costs.collectives.library import CollectiveCalibration
from simulator.costs.collectives.patterns import REDUCER, Edges, edges, loads
from simulator.costs.collectives.selection import library_for, load_calibration

__all__ = [
    "ALGORITHMS",
    "REDUCER",
    "CollectiveCalibration",
    "CollectiveCost",
    "Edges",
    "GroupShape",
    "collective_cost",
    "collective_seconds",
    "edges",
    "library_for",
    "load_calibration",
    "loads",
]
