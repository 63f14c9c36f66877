"""Torus: shortest ways round, checked against networkx, and the loads of shifts in closed form."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from simulator.hardware.fabrics import Torus
from simulator.hardware.topology import build_topology
from tests.hardware.samples import HOP, NIC_LATENCY, cluster, node

CHIP = node(1, 1, "none", nic_attachment="gpu")


def torus(*dimensions: int, wrap: bool = True) -> Torus:
    return Torus(dimensions=dimensions, bandwidth=50e9, hop_latency=HOP, wrap=wrap)


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("dimensions", [(5,), (4, 3), (3, 2, 4), (2, 2, 2)])
def test_routes_have_the_length_of_shortest_paths(dimensions: tuple[int, ...], wrap: bool) -> None:
    size = int(np.prod(dimensions))
    topology = build_topology(cluster(torus(*dimensions, wrap=wrap), CHIP, size))
    grid = nx.convert_node_labels_to_integers(
        nx.grid_graph(dimensions[::-1], periodic=wrap), ordering="sorted"
    )
    source, destination = np.divmod(np.arange(size**2), size)
    hops = (topology.latency(source, destination) - NIC_LATENCY) / HOP
    shortest = dict(nx.all_pairs_shortest_path_length(grid))
    expected = [
        shortest[a][b] if a != b else -NIC_LATENCY / HOP for a, b in zip(source, destination, strict=True)
    ]
    np.testing.assert_allclose(hops, expected, atol=1e-9)


def test_links_of_a_route_follow_one_another() -> None:
    topology = build_topology(cluster(torus(5, 3), CHIP, 15))
    routes = topology.routes(np.array([0]), np.array([8]))
    for here, there in pairwise(routes.link):
        assert topology.head[here] == topology.tail[there]


def test_half_a_ring_is_gone_both_ways() -> None:
    topology = build_topology(cluster(torus(6), CHIP, 6))
    routes = topology.routes(np.array([1]), np.array([4]))
    on_ring = topology.kind[routes.link] == topology.kind_names.index("torus_x")
    assert on_ring.sum() == 6 and (routes.share[on_ring] == 0.5).all()


def test_a_shift_by_k_loads_every_forward_link_k_times() -> None:
    topology = build_topology(cluster(torus(8), CHIP, 8))
    ids = np.arange(8)
    routes = topology.routes(ids, (ids + 3) % 8)
    load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    ring = topology.kind == topology.kind_names.index("torus_x")
    assert sorted(load[ring]) == [0.0] * 8 + [3.0] * 8


def test_a_part_of_a_torus_is_open_where_it_is_cut() -> None:
    topology = build_topology(cluster(torus(8, 3), CHIP, 12))
    hops = (topology.latency(np.array([0, 0]), np.array([9, 2])) - NIC_LATENCY) / HOP
    np.testing.assert_allclose(hops, [3, 1])


def test_more_nodes_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="holds 12 nodes"):
        cluster(torus(4, 3), CHIP, 13)
