"""Topology: NICs shared and bundled, links inside nodes, names, faults, and building quickly at scale."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.hardware.cluster import Background
from simulator.hardware.fabrics import LeafSpine, RailOptimized, SingleSwitch
from simulator.hardware.topology import Topology, build_topology
from tests.hardware.samples import (
    HOP,
    HOST_BANDWIDTH,
    NIC_BANDWIDTH,
    SCALE_UP_BANDWIDTH,
    SCALE_UP_LATENCY,
    SPINES,
    cluster,
    mixed_cluster,
    node,
    nodes,
)

SWITCH = SingleSwitch(hop_latency=HOP)


def route(topology: Topology, source: int, destination: int) -> np.ndarray:
    return topology.routes(np.array([source]), np.array([destination])).link


@given(num_gpus=st.integers(1, 9), num_nics=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_the_ports_of_a_node_have_the_bandwidth_of_its_nics_and_follow_the_rule(
    num_gpus: int, num_nics: int
) -> None:
    each = node(num_gpus, num_nics, "nvswitch" if num_gpus > 1 else "none")
    topology = build_topology(cluster(SWITCH, each, 2))
    first = topology.ports.node == 0
    assert topology.ports.bandwidth[first].sum() == pytest.approx(num_nics * NIC_BANDWIDTH)
    if num_nics <= num_gpus:
        expected = [each.nic_of(gpu) for gpu in range(num_gpus)]
        assert topology.gpu_port[:num_gpus].tolist() == expected
    else:
        first_nics = [each.nic_of(gpu) for gpu in range(num_gpus)] + [num_nics]
        own = topology.capacity[topology.nic_out[:num_gpus]] / NIC_BANDWIDTH
        np.testing.assert_allclose(own, np.diff(first_nics))


def test_gpus_that_share_a_nic_share_its_links() -> None:
    topology = build_topology(cluster(SWITCH, node(4, 2), 2))
    assert topology.nic_out[0] == topology.nic_out[1] != topology.nic_out[2]
    assert route(topology, 0, 4)[1] == route(topology, 1, 6)[1]


def test_inside_a_switched_node_a_flow_uses_its_own_port_out_and_the_other_in() -> None:
    topology = build_topology(cluster(SWITCH))
    assert route(topology, 1, 3).tolist() == [topology.scale_up_out[1], topology.scale_up_in[3]]
    np.testing.assert_allclose(topology.capacity[topology.scale_up_out], SCALE_UP_BANDWIDTH)
    np.testing.assert_allclose(topology.latency(np.array([1]), np.array([3])), SCALE_UP_LATENCY)


def test_without_a_scale_up_network_traffic_crosses_the_host_and_its_narrow_root() -> None:
    topology = build_topology(cluster(SWITCH, nodes()["pcie with a root"]))
    out, root, into = route(topology, 1, 3)
    assert (out, into) == (topology.host_out[1], topology.host_in[3])
    assert topology.capacity[out] == HOST_BANDWIDTH
    assert topology.link_kind(root) == "host_root" and topology.capacity[root] == 20e9
    assert root == route(topology, 0, 2)[1]


def test_a_nic_on_the_gpu_itself_leaves_the_host_link_alone() -> None:
    topology = build_topology(cluster(SWITCH, nodes()["NIC on the GPU"]))
    assert [topology.link_kind(int(i)) for i in route(topology, 0, 2)] == ["nic_out", "nic_in"]


def test_a_node_without_nics_works_alone() -> None:
    alone = node(4, 0, nic=None)
    topology = build_topology(cluster(SWITCH, alone, 1))
    assert (topology.gpu_port == -1).all() and (topology.nic_out == -1).all()
    assert len(route(topology, 0, 3)) == 2


def test_a_flow_to_itself_uses_nothing() -> None:
    topology = build_topology(cluster(SWITCH))
    assert len(topology.routes(np.arange(8), np.arange(8))) == 0


@pytest.mark.parametrize("gpu", [-1, 32])
def test_gpus_that_do_not_exist_are_refused(gpu: int) -> None:
    with pytest.raises(ValueError, match="0 … 31"):
        build_topology(cluster(SWITCH)).routes(np.array([0]), np.array([gpu]))


def test_links_are_named_by_their_ends() -> None:
    topology = build_topology(cluster(LeafSpine(nodes_per_leaf=2, **SPINES)))
    names = [topology.link_name(int(i)) for i in route(topology, 0, 31)]
    assert names == [
        "host_out gpu[0] → host[0]",
        "nic_out host[0] → leaf[0]",
        "leaf_up leaf[0] → spine[0,0]",
        "leaf_down spine[0,0] → leaf[3]",
        "nic_in leaf[3] → host[7]",
        "host_in host[7] → gpu[31]",
    ]


def test_several_kinds_of_nodes_keep_their_own_hardware() -> None:
    topology = build_topology(mixed_cluster(SWITCH))
    assert topology.num_gpus == 3 * 4 + 2 * 8 + 3 * 2
    assert [topology.nodes[i].num_gpus for i in topology.node_hardware] == [4, 4, 4, 8, 8, 2, 2, 2]
    assert len(topology.hardware) == 1 and (topology.gpu_hardware == 0).all()
    assert topology.gpu_local.tolist()[:8] == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "fabric",
    [LeafSpine(nodes_per_leaf=4, **SPINES), RailOptimized(nodes_per_unit=32, ecmp="hashed", **SPINES)],
    ids=["even", "hashed rails"],
)
def test_building_and_routing_131072_gpus_takes_less_than_a_second_each(fabric: LeafSpine) -> None:
    big = cluster(fabric, node(8, 8), 16384)
    start = time.perf_counter()
    topology = build_topology(big)
    built = time.perf_counter()
    ids = np.arange(131072)
    routes = topology.routes(ids, np.roll(ids, -1))
    routed = time.perf_counter()
    assert topology.num_gpus == 131072 and len(routes) > 2 * 131072
    assert built - start < 1.0 and routed - built < 1.0  # a tenth of it on an idle core


def test_background_traffic_leaves_the_rest_of_the_links_it_names() -> None:
    fabric = LeafSpine(nodes_per_leaf=2, num_spines=2, hop_latency=HOP)
    free = build_topology(cluster(fabric))
    some = (Background(links="leaf_up", which=(1,), share=0.25), Background(links="nic_in", share=0.5))
    taken = build_topology(cluster(fabric, background=some))
    for kind, left in (("nic_in", 0.5), ("nic_out", 1.0), ("leaf_down", 1.0)):
        links = free.kind == free.kind_names.index(kind)
        np.testing.assert_allclose(taken.capacity[links], left * free.capacity[links])
    up = np.flatnonzero(free.kind == free.kind_names.index("leaf_up"))
    expected = np.where(np.arange(len(up)) == 1, 0.75, 1.0)
    np.testing.assert_allclose(taken.capacity[up] / free.capacity[up], expected)


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        ({"links": "leaf_upp", "share": 0.5}, "did you mean leaf_up"),
        ({"links": "leaf_up", "which": (99,), "share": 0.5}, "there is no leaf_up 99"),
    ],
)
def test_background_traffic_on_links_that_are_not_there_is_refused(traffic: dict, message: str) -> None:
    fabric = LeafSpine(nodes_per_leaf=2, num_spines=2, hop_latency=HOP)
    with pytest.raises(ValueError, match=message):
        build_topology(cluster(fabric, background=(Background(**traffic),)))
