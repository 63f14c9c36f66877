"""What every registered fabric must do (a new one joins by a sample in tests/hardware/samples.py)."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from simulator.hardware.fabrics import Fabric
from simulator.hardware.node import Node
from simulator.hardware.topology import Topology, build_topology
from tests.hardware.samples import NIC_BANDWIDTH, cluster, fabrics, mixed_cluster, node, nodes, spread

EVERY_FABRIC = pytest.mark.parametrize("fabric", [f for _, f in fabrics()], ids=[n for n, _ in fabrics()])
EVERY_NODE = pytest.mark.parametrize("each", nodes().values(), ids=nodes().keys())


def all_pairs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    source, destination = np.divmod(np.arange(topology.num_gpus**2), topology.num_gpus)
    return source, destination


def graph(topology: Topology) -> nx.DiGraph:
    """Vertices and links, parallel links summed; capacities in whole MB/s, which max-flow is exact on."""
    result = nx.DiGraph()
    for tail, head, capacity in zip(topology.tail, topology.head, topology.capacity, strict=True):
        before = result.get_edge_data(int(tail), int(head), {"capacity": 0})["capacity"]
        result.add_edge(int(tail), int(head), capacity=before + round(capacity / 1e6))
    return result


def assert_flows_are_conserved(topology: Topology) -> None:
    """What enters a vertex leaves it, but for the source and the destination of each flow."""
    source, destination = all_pairs(topology)
    routes = topology.routes(source, destination)
    num_vertices = int(max(topology.tail.max(), topology.head.max())) + 1
    balance = np.zeros((len(source), num_vertices))
    np.add.at(balance, (routes.flow, topology.head[routes.link]), routes.share)
    np.add.at(balance, (routes.flow, topology.tail[routes.link]), -routes.share)
    host = topology.num_gpus + topology.gpu_node
    if (
        not topology.nic_behind_host.all()
    ):  # there the way from GPU to NIC is no link: count both as one place
        for gpu in np.nonzero(~topology.nic_behind_host)[0]:
            balance[:, host[gpu]] += balance[:, gpu]
            balance[:, gpu] = 0.0
    start = np.where(topology.nic_behind_host[source], source, host[source])
    end = np.where(topology.nic_behind_host[destination], destination, host[destination])
    expected = np.zeros_like(balance)
    np.add.at(expected, (np.arange(len(source)), end), 1.0)
    np.add.at(expected, (np.arange(len(source)), start), -1.0)
    expected[source == destination] = 0.0
    np.testing.assert_allclose(balance, expected, atol=1e-12)


@EVERY_FABRIC
@EVERY_NODE
def test_every_pair_of_gpus_is_joined_by_routes_that_lose_nothing(fabric: Fabric, each: Node) -> None:
    assert_flows_are_conserved(build_topology(cluster(fabric, each)))


@EVERY_FABRIC
def test_a_cluster_of_several_kinds_of_nodes_is_joined_too(fabric: Fabric) -> None:
    assert_flows_are_conserved(build_topology(mixed_cluster(fabric)))


@EVERY_FABRIC
def test_a_flow_leaves_and_enters_a_node_exactly_once(fabric: Fabric) -> None:
    topology = build_topology(cluster(fabric))
    source, destination = all_pairs(topology)
    routes = topology.routes(source, destination)
    across = topology.gpu_node[source] != topology.gpu_node[destination]
    for kind in ("nic_out", "nic_in"):
        on_kind = topology.kind[routes.link] == topology.kind_names.index(kind)
        passed = np.bincount(routes.flow[on_kind], routes.share[on_kind], minlength=len(source))
        np.testing.assert_allclose(passed, np.where(across, 1.0, 0.0))


@EVERY_FABRIC
def test_shares_lie_between_zero_and_one_and_rows_are_sorted_by_flow(fabric: Fabric) -> None:
    topology = build_topology(cluster(fabric))
    routes = topology.routes(*all_pairs(topology))
    assert (routes.share > 0).all() and (routes.share <= 1).all()
    assert (np.diff(routes.flow) >= 0).all()
    assert (routes.link >= 0).all() and (routes.link < topology.num_links).all()


@EVERY_FABRIC
def test_the_bisection_is_the_maximum_flow_between_the_halves(fabric: Fabric) -> None:
    topology = build_topology(cluster(fabric))
    if topology.bisection is None:
        pytest.skip("this fabric states no closed form here")
    network = graph(topology)
    for place in range(topology.num_nodes):
        host = topology.num_gpus + place
        if place < topology.num_nodes // 2:
            network.add_edge("first half", host)
        else:
            network.add_edge(host, "second half")
    flow = nx.maximum_flow_value(network, "first half", "second half")
    assert flow == pytest.approx(topology.bisection / 1e6, rel=1e-4)


def test_most_fabrics_state_a_bisection() -> None:
    stated = [name for name, fabric in fabrics() if build_topology(cluster(fabric)).bisection is not None]
    assert len(stated) > len(fabrics()) // 2


@EVERY_FABRIC
def test_no_route_is_shorter_than_the_shortest_path(fabric: Fabric) -> None:
    topology = build_topology(cluster(fabric))
    source, destination = all_pairs(topology)
    routes = topology.routes(source, destination)
    links = np.bincount(routes.flow, routes.share, minlength=len(source))
    shortest = dict(nx.all_pairs_shortest_path_length(graph(topology)))
    for flow in range(len(source)):
        assert links[flow] >= shortest[source[flow]][destination[flow]] - 1e-9


@EVERY_FABRIC
def test_latency_is_the_same_there_and_back(fabric: Fabric) -> None:
    topology = build_topology(cluster(fabric))
    source, destination = all_pairs(topology)
    there, back = topology.latency(source, destination), topology.latency(destination, source)
    np.testing.assert_allclose(there, back)
    assert (there[source == destination] == 0).all() and (there[source != destination] > 0).all()


@EVERY_FABRIC
def test_moving_nodes_to_other_places_moves_their_routes_along(fabric: Fabric) -> None:
    if getattr(fabric, "ecmp", "even") == "hashed":
        pytest.skip("a hash knows the names of the ends")
    packed = build_topology(cluster(fabric))
    moved = build_topology(cluster(fabric, placement=spread(seed=5)))
    place = moved.ports.place[np.searchsorted(moved.ports.node, np.arange(moved.num_nodes))]
    where = place[moved.gpu_node] * 4 + moved.gpu_local
    source, destination = all_pairs(packed)
    ours = profile(moved, source, destination)
    assert ours == profile(packed, where[source], where[destination])


def profile(
    topology: Topology, source: np.ndarray, destination: np.ndarray
) -> list[list[tuple[str, float, float]]]:
    """Per flow the kinds, capacities and shares of its links, in an order of their own."""
    routes = topology.routes(source, destination)
    found: list[list[tuple[str, float, float]]] = [[] for _ in source]
    for flow, link, share in zip(routes.flow, routes.link, routes.share, strict=True):
        found[flow].append(
            (topology.link_kind(int(link)), float(topology.capacity[link]), round(float(share), 9))
        )
    return [sorted(links) for links in found]


@EVERY_FABRIC
def test_more_nodes_do_not_change_routes_inside_a_neighbourhood(fabric: Fabric) -> None:
    size = fabric.nodes_per_neighbourhood
    if size is None or size < 2:
        pytest.skip("nodes of this fabric have no neighbourhood of several")
    small, large = build_topology(cluster(fabric)), build_topology(cluster(fabric, num_nodes=16))
    source, destination = np.divmod(np.arange((size * 4) ** 2), size * 4)
    names = []
    for topology in (small, large):
        routes = topology.routes(source, destination)
        names.append(
            [(int(f), topology.link_name(int(i))) for f, i in zip(routes.flow, routes.link, strict=True)]
        )
    assert names[0] == names[1]


@EVERY_FABRIC
def test_building_twice_gives_the_same_routes(fabric: Fabric) -> None:
    one = build_topology(cluster(fabric))
    assert build_topology(cluster(fabric)) is one
    build_topology.cache_clear()
    other = build_topology(cluster(fabric))
    assert other is not one
    pairs = all_pairs(one)
    np.testing.assert_array_equal(one.routes(*pairs).link, other.routes(*pairs).link)


@EVERY_FABRIC
def test_faster_nics_or_switches_never_slow_an_all_to_all(fabric: Fabric) -> None:
    slow = build_topology(cluster(fabric))
    nic = slow.nodes[0].nic
    assert nic is not None
    fast = build_topology(cluster(fabric, node(nic=nic.model_copy(update={"bandwidth": 2 * NIC_BANDWIDTH}))))
    assert (busiest(fast) <= busiest(slow) * (1 + 1e-12)).all()


def busiest(topology: Topology) -> np.ndarray:
    """Seconds that the busiest link needs when every pair of GPUs exchanges one byte."""
    routes = topology.routes(*all_pairs(topology))
    load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    return (load / topology.capacity).max()


@EVERY_FABRIC
def test_one_node_alone_needs_no_fabric(fabric: Fabric) -> None:
    topology = build_topology(cluster(fabric, num_nodes=1))
    routes = topology.routes(*all_pairs(topology))
    kinds = {topology.link_kind(int(link)) for link in routes.link}
    assert kinds == {"scale_up_out", "scale_up_in"}
