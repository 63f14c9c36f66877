"""Placement: which place of the fabric each node takes."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.hardware.cluster import Placement
from simulator.hardware.fabrics import LeafSpine, RailOptimized, SingleSwitch
from simulator.hardware.placement import places
from simulator.hardware.topology import build_topology
from tests.hardware.samples import HOP, SPINES, cluster

LEAVES = LeafSpine(nodes_per_leaf=4, **SPINES)


@pytest.mark.parametrize("policy", ["packed", "spread", "random"])
@pytest.mark.parametrize("num_nodes", [1, 7, 16, 19])
def test_every_place_is_taken_once(policy: str, num_nodes: int) -> None:
    found = places(cluster(LEAVES, num_nodes=num_nodes, placement=Placement(policy=policy)))
    assert sorted(found.tolist()) == list(range(num_nodes))


def test_packed_nodes_sit_in_order() -> None:
    assert places(cluster(LEAVES)).tolist() == list(range(8))


def test_spread_nodes_are_dealt_over_the_leaves() -> None:
    found = places(cluster(LEAVES, num_nodes=16, placement=Placement(policy="spread")))
    assert (found // 4).tolist() == [0, 1, 2, 3] * 4


def test_where_all_places_are_alike_spreading_changes_nothing() -> None:
    spread = Placement(policy="spread")
    assert places(cluster(SingleSwitch(hop_latency=HOP), placement=spread)).tolist() == list(range(8))


def test_a_seed_draws_its_own_places_again() -> None:
    draws = [
        places(cluster(LEAVES, placement=Placement(policy="random", seed=s))).tolist() for s in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_neighbours_in_a_ring_cross_more_leaves_when_spread() -> None:
    def uplink_bytes(policy: str) -> float:
        fabric = RailOptimized(nodes_per_unit=4, **SPINES)
        topology = build_topology(cluster(fabric, num_nodes=16, placement=Placement(policy=policy)))
        gpus = np.arange(0, 64, 4)
        routes = topology.routes(gpus, np.roll(gpus, -1))
        return float(routes.share[topology.kind[routes.link] == topology.kind_names.index("leaf_up")].sum())

    assert uplink_bytes("packed") == 4 and uplink_bytes("spread") == 16
