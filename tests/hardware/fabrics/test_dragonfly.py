"""Dragonfly: hops and loads in closed form, minimal and Valiant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.hardware.fabrics import Dragonfly
from simulator.hardware.topology import Topology, build_topology
from tests.hardware.samples import HOP, NIC_LATENCY, cluster


def dragonfly(**changes: Any) -> Dragonfly:
    values: dict[str, Any] = {
        "global_bandwidth": 60e9,
        "local_bandwidth": 40e9,
        "hop_latency": HOP,
        **changes,
    }
    return Dragonfly(nodes_per_router=2, routers_per_group=2, **values)


def built(**changes: Any) -> Topology:
    """Four groups of two routers of two nodes of four GPUs."""
    return build_topology(cluster(dragonfly(**changes), num_nodes=16))


@pytest.mark.parametrize(
    ("destination", "hops"), [(4, 1), (8, 2), (16, 3)], ids=["same router", "same group", "another group"]
)
def test_hops_to_ever_farther_nodes(destination: int, hops: int) -> None:
    delay = built().latency(np.array([0]), np.array([destination]))
    assert delay[0] == pytest.approx(NIC_LATENCY + hops * HOP)


def test_the_long_cable_counts_between_groups_only() -> None:
    near, far = built(global_latency=1e-6).latency(np.array([0, 0]), np.array([8, 16]))
    assert far - near == pytest.approx(HOP + 1e-6)


def group_pair_loads(topology: Topology) -> np.ndarray:
    """Bytes on the global links when every GPU of group 0 sends one byte to its counterpart in group 1."""
    source = np.arange(16)
    routes = topology.routes(source, source + 16)
    load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    return load[topology.kind == topology.kind_names.index("global")]


def test_minimal_routes_put_a_group_pair_on_its_own_links() -> None:
    assert sorted(group_pair_loads(built())) == [0.0] * 11 + [16.0]


def test_valiant_routes_spread_it_over_the_other_groups() -> None:
    loads = group_pair_loads(built(minimal_share=0.0))
    assert sorted(loads) == [0.0] * 8 + [8.0] * 4


def test_a_mix_spreads_in_proportion() -> None:
    assert group_pair_loads(built(minimal_share=0.5)).max() == pytest.approx(8.0)
    assert group_pair_loads(built(minimal_share=0.5)).sum() == pytest.approx(16 * 0.5 + 2 * 16 * 0.5)


def test_adaptive_routes_of_a_whole_machine_are_minimal() -> None:
    assert sorted(group_pair_loads(built(minimal_share="adaptive", groups=4))) == [0.0] * 11 + [16.0]
    assert sorted(group_pair_loads(built(minimal_share="adaptive"))) == [0.0] * 11 + [16.0]


def test_adaptive_routes_load_all_links_alike_when_all_groups_of_a_job_exchange_as_much() -> None:
    """Four of ten groups: 3/9 goes direct, 1/9 over each of the six others, whose links three flows share."""
    topology = built(minimal_share="adaptive", groups=10)
    nodes = np.arange(64)
    pairs = [(a, b) for a in range(0, 64, 16) for b in range(0, 64, 16) if a != b]
    source = np.concatenate([nodes[a : a + 16] for a, _ in pairs])
    destination = np.concatenate([nodes[b : b + 16] for _, b in pairs])
    routes = topology.routes(source, destination)
    load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    loads = load[topology.kind == topology.kind_names.index("global")]
    assert len(loads) == 4 * 3 + 2 * 4 * 6
    assert loads == pytest.approx(np.full(len(loads), 16 / 3))


def test_adaptive_routes_of_a_ring_of_groups_use_every_link_out_of_a_group() -> None:
    """Each group sends to the next one only: a seventh directly, a seventh over each of six idle groups."""
    topology = built(minimal_share="adaptive", groups=10)
    source = np.arange(64)
    routes = topology.routes(source, (source + 16) % 64)
    load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    loads = load[topology.kind == topology.kind_names.index("global")]
    assert loads[loads > 0] == pytest.approx(np.full(4 * 7 + 4 * 6, 16 / 7))
