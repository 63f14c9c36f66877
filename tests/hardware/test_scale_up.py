"""NVLink meshes: paths between GPUs without a link, and what rings make of all links together."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from simulator.hardware.fabrics import SingleSwitch
from simulator.hardware.node import Interconnect
from simulator.hardware.topology import Topology, build_topology
from tests.hardware.samples import (
    CUBE_MESH,
    HOP,
    HOST_BANDWIDTH,
    SCALE_UP_BANDWIDTH,
    cluster,
    cube_mesh_node,
    node,
    nodes,
)

SWITCH = SingleSwitch(hop_latency=HOP)
LANE = SCALE_UP_BANDWIDTH / 6  # every GPU of the cube mesh has six lanes


def cube_mesh(num_nodes: int = 2) -> Topology:
    return build_topology(cluster(SWITCH, cube_mesh_node(), num_nodes))


def ring(*members: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(group, source, destination) of one ring."""
    return np.zeros(len(members), dtype=np.int64), np.array(members), np.roll(members, -1)


def link_seconds(topology: Topology, *members: int) -> np.ndarray:
    """Seconds of every mesh link used when each member sends one byte along the ring."""
    routes = topology.ring_routes(*ring(*members))
    load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    return (load / topology.capacity)[load > 0]


def test_all_pairs_take_shortest_paths_in_the_mesh() -> None:
    network = nx.Graph([(a, b) for a, b, _ in CUBE_MESH])
    shortest = dict(nx.all_pairs_shortest_path_length(network))
    topology = cube_mesh()
    source, destination = np.divmod(np.arange(64), 8)
    routes = topology.routes(source, destination)
    hops = np.bincount(routes.flow, minlength=64)
    assert hops.tolist() == [shortest[a][b] for a, b in zip(source, destination, strict=True)]


def test_pairs_without_a_link_take_the_widest_of_the_shortest_paths() -> None:
    topology = cube_mesh()
    links = topology.routes(np.array([0]), np.array([7])).link
    assert topology.head[links].tolist() == [4, 7]  # 0 = 4 = 7 over double lanes, rather than 0 = 3 - 7
    np.testing.assert_allclose(topology.capacity[links], 2 * LANE)


def test_lanes_divide_the_bandwidth_of_a_gpu() -> None:
    topology = cube_mesh()
    leaving = topology.tail[topology.kind == topology.kind_names.index("mesh")]
    capacity = topology.capacity[topology.kind == topology.kind_names.index("mesh")]
    np.testing.assert_allclose(np.bincount(leaving, capacity)[:8], SCALE_UP_BANDWIDTH)


def test_a_ring_over_the_whole_mesh_fills_every_link_alike() -> None:
    times = link_seconds(cube_mesh(), *range(8))
    assert len(times) == 2 * len(CUBE_MESH)
    np.testing.assert_allclose(times, 1 / SCALE_UP_BANDWIDTH)


def test_the_order_of_the_members_does_not_matter_to_the_library() -> None:
    topology = cube_mesh()
    assert link_seconds(topology, 0, 5, 2, 7, 4, 1, 6, 3).max() == pytest.approx(
        link_seconds(topology, *range(8)).max()
    )


def test_a_ring_of_some_members_uses_only_links_among_them() -> None:
    topology = cube_mesh()
    np.testing.assert_allclose(link_seconds(topology, 0, 1), 1 / LANE)
    np.testing.assert_allclose(link_seconds(topology, 0, 3), 1 / (2 * LANE))
    assert topology.scale_up_bandwidth(np.array([0, 1])) == pytest.approx(LANE)
    assert topology.scale_up_bandwidth(np.array([0, 1, 2, 3])) == pytest.approx(4 * LANE)
    assert topology.scale_up_bandwidth(np.arange(8)) == pytest.approx(6 * LANE)


def test_the_bandwidth_of_a_ring_is_what_its_slowest_gpu_can_send() -> None:
    topology = cube_mesh()
    for members in ([0, 1, 2, 3], [0, 3, 4, 7], [1, 2, 5, 6], [0, 1, 2, 3, 4, 5, 6, 7]):
        assert 1 / link_seconds(topology, *members).max() == pytest.approx(
            topology.scale_up_bandwidth(np.array(members)), rel=1e-9
        )


def test_members_on_other_nodes_and_other_groups_do_not_lend_their_links() -> None:
    topology = cube_mesh()
    group = np.array([0, 0, 1, 1, 2, 2])
    source, destination = np.array([0, 1, 3, 2, 8, 11]), np.array([1, 0, 2, 3, 11, 8])
    routes, alone = topology.ring_routes(group, source, destination), topology.routes(source, destination)
    np.testing.assert_array_equal(routes.link, alone.link)


def test_members_without_a_link_between_them_go_over_others() -> None:
    topology = cube_mesh()
    routes, path = topology.ring_routes(*ring(0, 7)), topology.routes(np.array([0, 7]), np.array([7, 0]))
    np.testing.assert_array_equal(routes.link, path.link)


@pytest.mark.parametrize("name", ["switched", "pcie", "shared NICs"])
def test_without_a_mesh_rings_take_the_plain_routes(name: str) -> None:
    topology = build_topology(cluster(SWITCH, nodes()[name], 2))
    routes, plain = (
        topology.ring_routes(*ring(*range(8))),
        topology.routes(np.arange(8), np.roll(np.arange(8), -1)),
    )
    np.testing.assert_array_equal(routes.link, plain.link)
    np.testing.assert_array_equal(routes.share, plain.share)


def test_scale_up_bandwidth_is_that_of_what_joins_the_gpus() -> None:
    both = np.array([0, 1])
    for each, expected in (
        (nodes()["switched"], SCALE_UP_BANDWIDTH),
        (nodes()["pcie"], HOST_BANDWIDTH),
        (nodes()["pcie with a root"], 20e9 / 2),
    ):
        assert build_topology(cluster(SWITCH, each, 2)).scale_up_bandwidth(both) == expected
    assert build_topology(cluster(SWITCH)).scale_up_bandwidth(np.array([0, 4])) == np.inf


def test_bridged_cards_reach_other_pairs_over_the_host() -> None:
    bridges = Interconnect(kind="nvlink_mesh", latency=1e-6, links=((0, 1, 4), (2, 3, 4)))
    topology = build_topology(cluster(SWITCH, node(4, 4, "nvlink_mesh", interconnect=bridges), 1))
    kinds = [topology.link_kind(int(i)) for i in topology.routes(np.array([0, 0]), np.array([1, 2])).link]
    assert kinds == ["mesh", "host_out", "host_in"]
    np.testing.assert_allclose(topology.latency(np.array([0, 0]), np.array([1, 2])), 1e-6)
