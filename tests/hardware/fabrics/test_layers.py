"""Leaves, spines, pods and rails: hops, loads and hashing in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.hardware.fabrics import Fabric, LeafSpine, Links, RailOptimized, SingleSwitch
from simulator.hardware.topology import Topology, build_topology
from simulator.hardware.wiring import hashed_choice
from tests.hardware.samples import (
    HOP,
    NIC_BANDWIDTH,
    NIC_LATENCY,
    SCALE_UP_LATENCY,
    SPINES,
    cluster,
    node,
    star_links,
)


def kinds(topology: Topology, source: int, destination: int) -> list[str]:
    return [
        topology.link_kind(int(i)) for i in topology.routes(np.array([source]), np.array([destination])).link
    ]


def latency(topology: Topology, source: int, destination: int) -> float:
    return float(topology.latency(np.array([source]), np.array([destination]))[0])


def load(topology: Topology, kind: str) -> np.ndarray:
    """Bytes on every link of a kind when every GPU sends one byte to every other."""
    source, destination = np.divmod(np.arange(topology.num_gpus**2), topology.num_gpus)
    routes = topology.routes(source, destination)
    total = np.bincount(routes.link, routes.share, minlength=topology.num_links)
    return total[topology.kind == topology.kind_names.index(kind)]


def seconds(topology: Topology) -> float:
    """Time of the busiest link of that exchange."""
    source, destination = np.divmod(np.arange(topology.num_gpus**2), topology.num_gpus)
    routes = topology.routes(source, destination)
    return float(
        (np.bincount(routes.link, routes.share, minlength=topology.num_links) / topology.capacity).max()
    )


@pytest.mark.parametrize(
    ("destination", "hops"),
    [(4, 1), (8, 3), (16, 5)],
    ids=["under one leaf", "under one set of spines", "across pods"],
)
def test_hops_grow_with_the_layers_crossed(destination: int, hops: int) -> None:
    fabric = LeafSpine(nodes_per_leaf=2, nodes_per_pod=4, **SPINES)
    assert latency(build_topology(cluster(fabric)), 0, destination) == pytest.approx(NIC_LATENCY + hops * HOP)


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 5.0])
def test_leaf_uplinks_are_the_nics_below_over_the_oversubscription(oversubscription: float) -> None:
    fabric = LeafSpine(nodes_per_leaf=2, oversubscription=oversubscription, **SPINES)
    topology = build_topology(cluster(fabric))
    uplinks = topology.capacity[topology.kind == topology.kind_names.index("leaf_up")]
    np.testing.assert_allclose(uplinks, 2 * 4 * NIC_BANDWIDTH / oversubscription)


@pytest.mark.parametrize("core", [1.0, 7.0])
def test_the_core_of_pods_has_their_leaf_uplinks_over_its_own_oversubscription(core: float) -> None:
    fabric = LeafSpine(
        nodes_per_leaf=1, nodes_per_pod=2, oversubscription=2.0, core_oversubscription=core, **SPINES
    )
    topology = build_topology(cluster(fabric))
    uplinks = topology.capacity[topology.kind == topology.kind_names.index("spine_up")]
    np.testing.assert_allclose(uplinks, 2 * 4 * NIC_BANDWIDTH / 2.0 / core)
    assert topology.bisection == pytest.approx(4 * 4 * NIC_BANDWIDTH / 2.0 / core)


def test_uplinks_can_be_given_instead() -> None:
    fabric = LeafSpine(nodes_per_leaf=2, uplink_bandwidth=7e9, **SPINES)
    topology = build_topology(cluster(fabric))
    uplinks = topology.capacity[topology.kind == topology.kind_names.index("leaf_up")]
    np.testing.assert_allclose(uplinks, 4 * 7e9)


def test_an_all_to_all_puts_the_traffic_that_leaves_a_leaf_on_its_uplinks() -> None:
    topology = build_topology(cluster(LeafSpine(nodes_per_leaf=2, **SPINES)))
    np.testing.assert_allclose(load(topology, "leaf_up"), 8 * (32 - 8))
    np.testing.assert_allclose(load(topology, "leaf_down"), 8 * (32 - 8))
    np.testing.assert_allclose(load(topology, "nic_out"), 32 - 4)


def test_an_oversubscribed_fabric_is_slower_by_just_that() -> None:
    times = [
        seconds(build_topology(cluster(LeafSpine(nodes_per_leaf=2, oversubscription=o, **SPINES))))
        for o in (2.0, 4.0, 8.0)
    ]
    assert times[1] == pytest.approx(2 * times[0]) and times[2] == pytest.approx(4 * times[0])


def test_the_topology_changes_the_result() -> None:
    fabrics: list[Fabric] = [
        SingleSwitch(hop_latency=HOP),
        LeafSpine(nodes_per_leaf=2, oversubscription=3.0, **SPINES),
        LeafSpine(nodes_per_leaf=2, ecmp="hashed", **SPINES),
        star_links(8, bandwidth=30e9),
    ]
    assert len({round(seconds(build_topology(cluster(fabric))), 15) for fabric in fabrics}) == len(fabrics)


@pytest.mark.parametrize("seed", range(3))
def test_a_hashed_flow_takes_one_path_and_evenly_many_on_average(seed: int) -> None:
    fabric = LeafSpine(nodes_per_leaf=2, ecmp="hashed", seed=seed, **SPINES)
    topology = build_topology(cluster(fabric))
    assert kinds(topology, 0, 31) == ["host_out", "nic_out", "leaf_up", "leaf_down", "nic_in", "host_in"]
    on_uplinks = load(topology, "leaf_up").reshape(4, 4)
    np.testing.assert_allclose(on_uplinks.sum(axis=1), 8 * 24)
    assert (on_uplinks > 24).all() and (on_uplinks < 72).all()  # 48 on average, 6 of standard deviation


def test_another_seed_draws_other_paths() -> None:
    pairs = np.arange(32), np.roll(np.arange(32), 8)
    routes = [
        build_topology(cluster(LeafSpine(nodes_per_leaf=2, ecmp="hashed", seed=seed, **SPINES))).routes(
            *pairs
        )
        for seed in (0, 1)
    ]
    assert (routes[0].link != routes[1].link).any()


def test_hashed_flows_collide_and_so_are_slower_than_even_ones() -> None:
    shift = np.arange(32), np.roll(np.arange(32), 8)
    even = build_topology(cluster(LeafSpine(nodes_per_leaf=2, **SPINES)))
    hashed = build_topology(cluster(LeafSpine(nodes_per_leaf=2, ecmp="hashed", **SPINES)))
    times = []
    for topology in (even, hashed):
        routes = topology.routes(*shift)
        load = np.bincount(routes.link, routes.share, minlength=topology.num_links)
        times.append((load / topology.capacity).max())
    assert times[1] >= 1.5 * times[0]


def test_more_paths_per_flow_come_closer_to_the_even_split() -> None:
    def worst(paths: int) -> float:
        fabric = LeafSpine(nodes_per_leaf=2, ecmp="hashed", paths_per_flow=paths, **SPINES)
        return float(load(build_topology(cluster(fabric)), "leaf_up").max())

    assert worst(64) < worst(4) < worst(1)
    assert worst(64) == pytest.approx(48, rel=0.1)


def test_a_hash_fills_all_choices_alike() -> None:
    counts = np.bincount(hashed_choice(np.arange(80_000), 8, seed=3))
    assert abs(counts - 10_000).max() < 500  # five standard deviations


def test_explicit_links_to_a_hub_are_a_single_switch() -> None:
    hub = build_topology(cluster(star_links(8, latency=HOP / 2)))
    switch = build_topology(cluster(SingleSwitch(hop_latency=HOP)))
    source, destination = np.divmod(np.arange(32**2), 32)
    np.testing.assert_allclose(hub.latency(source, destination), switch.latency(source, destination))
    assert seconds(hub) == pytest.approx(seconds(switch))
    for kind in ("nic_out", "nic_in", "host_out", "scale_up_out"):
        np.testing.assert_allclose(load(hub, kind), load(switch, kind))


def test_a_leaf_for_all_nodes_is_a_single_switch() -> None:
    leaf = build_topology(cluster(LeafSpine(nodes_per_leaf=8, **SPINES)))
    switch = build_topology(cluster(SingleSwitch(hop_latency=HOP)))
    assert seconds(leaf) == pytest.approx(seconds(switch)) and latency(leaf, 0, 31) == latency(switch, 0, 31)


def test_nodes_that_no_link_reaches_are_named_as_a_fault() -> None:
    topology = build_topology(cluster(Links(links=star_links(8).links[1:])))
    with pytest.raises(ValueError, match="without a path"):
        topology.routes(np.array([0]), np.array([4]))


class TestRails:
    FABRIC = RailOptimized(nodes_per_unit=4, **SPINES)

    def test_equal_positions_meet_in_one_leaf(self) -> None:
        topology = build_topology(cluster(self.FABRIC))
        assert kinds(topology, 1, 13) == ["host_out", "nic_out", "nic_in", "host_in"]
        assert latency(topology, 1, 13) == pytest.approx(NIC_LATENCY + HOP)

    def test_other_rails_are_reached_over_the_scale_up_network_first(self) -> None:
        topology = build_topology(cluster(self.FABRIC))
        route = topology.routes(np.array([1]), np.array([14])).link
        assert kinds(topology, 1, 14) == [
            "scale_up_out", "scale_up_in", "host_out", "nic_out", "nic_in", "host_in",
        ]  # fmt: skip
        assert route[1] == topology.scale_up_in[2] and route[3] == topology.nic_out[2]
        assert latency(topology, 1, 14) == pytest.approx(SCALE_UP_LATENCY + NIC_LATENCY + HOP)

    def test_or_through_the_spines(self) -> None:
        topology = build_topology(cluster(self.FABRIC.model_copy(update={"cross_rail": "spine"})))
        assert kinds(topology, 1, 14) == ["host_out", "nic_out", "leaf_up", "leaf_down", "nic_in", "host_in"]
        assert latency(topology, 1, 14) == pytest.approx(NIC_LATENCY + 3 * HOP)

    def test_nodes_without_scale_up_network_use_the_spines(self) -> None:
        topology = build_topology(cluster(self.FABRIC, node(4, 4, "pcie")))
        assert "leaf_up" in kinds(topology, 1, 14)

    def test_units_are_joined_by_spines(self) -> None:
        topology = build_topology(cluster(self.FABRIC))
        assert latency(topology, 0, 16) == pytest.approx(NIC_LATENCY + 3 * HOP)

    def test_an_all_to_all_loads_every_nic_alike(self) -> None:
        topology = build_topology(cluster(self.FABRIC))
        np.testing.assert_allclose(load(topology, "nic_out"), 28)
        np.testing.assert_allclose(load(topology, "nic_in"), 28)

    def test_gpus_that_share_a_nic_hand_over_to_different_gpus_of_the_other_rail(self) -> None:
        topology = build_topology(cluster(self.FABRIC, node(4, 2)))
        routes = topology.routes(np.array([0, 1]), np.array([6, 7]))
        into = [topology.scale_up_in[2], topology.scale_up_in[3]]
        assert [routes.link[routes.flow == flow][1] for flow in (0, 1)] == into
