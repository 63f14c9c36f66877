"""Cluster descriptions become the namespaces, links and paths that their fabric says."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.calibration.minicluster.wiring import WiringError, address_of, wiring_of
from simulator.hardware.cluster import Cluster
from simulator.hardware.topology import build_topology
from tests.calibration.minicluster.conftest import describe, describe_fabric, describe_node

leaf_spines = st.builds(
    lambda nodes, per_leaf, spines, over: describe(
        nodes, nodes_per_leaf=per_leaf, num_spines=spines, oversubscription=over, ecmp="hashed"
    ),
    st.integers(2, 12),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([1.0, 2.0, 4.0]),
)
few = settings(max_examples=30, deadline=None)


@few
@given(leaf_spines)
def test_every_path_follows_cables_from_source_to_destination(cluster):
    wiring = wiring_of(cluster)
    assert len(wiring.paths) == cluster.num_nodes * (cluster.num_nodes - 1)
    for (source, destination), path in wiring.paths.items():
        assert path[0] == wiring.hosts[source].name
        assert path[-1] == wiring.hosts[destination].name
        assert set(pairwise(path)) <= set(wiring.rates)
        assert len(set(path)) == len(path)


@few
@given(leaf_spines)
def test_an_uplink_has_its_leafs_hosts_rate_over_oversubscription_and_spines(cluster):
    wiring, fabric = wiring_of(cluster), cluster.fabric
    for (here, there), rate in wiring.rates.items():
        if there.startswith("spine"):
            below = sum(r for (_, head), r in wiring.rates.items() if head == here and _.startswith("n"))
            assert rate == pytest.approx(below / fabric.oversubscription / fabric.num_spines)


@few
@given(leaf_spines)
def test_ports_together_are_crossed_by_every_pair_once_per_hop(cluster):
    wiring = wiring_of(cluster)
    hops = sum(len(path) - 1 for path in wiring.paths.values())
    assert sum(len(port.pairs) for port in wiring.ports()) == hops


def test_a_single_switch_gives_every_host_one_cable():
    wiring = wiring_of(describe(5, megabits=80))
    assert [ends[0] for ends in wiring.cables()] == [f"n{i}" for i in range(5)]
    assert set(wiring.rates.values()) == {10e6}
    assert {port.interface for port in wiring.ports() if port.namespace == "n3"} == {"eth0"}


def test_groups_of_nodes_keep_their_own_rates():
    groups = [
        {"node": describe_node(megabits=200), "num_nodes": 2},
        {"node": describe_node(megabits=50), "num_nodes": 1},
    ]
    cluster = Cluster.model_validate({"groups": groups, "fabric": describe_fabric()})
    assert [host.rate for host in wiring_of(cluster).hosts] == [25e6, 25e6, 6.25e6]


def test_even_splitting_is_wired_as_the_one_bundle_it_amounts_to():
    wiring = wiring_of(describe(4, nodes_per_leaf=2, num_spines=2, oversubscription=2.0, ecmp="even"))
    assert len([name for name in wiring.switches if name.startswith("spine")]) == 1
    assert wiring.rates["leaf-0", "spine-0-0"] == 12.5e6


def test_hashed_pairs_take_the_spine_that_the_simulator_routes_them_over():
    cluster = describe(8, nodes_per_leaf=1, num_spines=4, ecmp="hashed")
    topology = build_topology(cluster)
    for (source, destination), path in wiring_of(cluster).paths.items():
        routes = topology.routes(np.array([source]), np.array([destination]))
        names = " ".join(topology.link_name(link) for link in routes.link)
        spine = re.search(r"→ spine\[0,(\d)\]", names)
        assert path[2] == f"spine-0-{spine[1]}"


def test_a_cluster_larger_than_a_machine_can_drive_is_refused():
    with pytest.raises(WiringError, match="more than 64 nodes"):
        wiring_of(describe(65))
    with pytest.raises(WiringError, match="at least two"):
        wiring_of(describe(1))


def test_flows_split_over_several_paths_are_refused():
    with pytest.raises(WiringError, match="a TCP flow takes one"):
        wiring_of(describe(4, nodes_per_leaf=1, num_spines=4, ecmp="hashed", paths_per_flow=2))


@pytest.mark.parametrize(("key", "words"), [("num_gpus", "unshaped loopback"), ("num_nics", "2 NICs")])
def test_nodes_that_namespaces_cannot_stand_for_are_refused(key, words):
    cluster = describe(2)
    node = cluster.node.model_copy(update={key: 2})
    with pytest.raises(WiringError, match=words):
        wiring_of(cluster.model_copy(update={"node": node}))


def test_addresses_are_unique_and_valid():
    addresses = {address_of(i) for i in range(2000)}
    assert len(addresses) == 2000
    assert all(1 <= int(a.rpartition(".")[2]) <= 250 for a in addresses)
