"""Clusters and nodes: scaled to any number of GPUs, refused where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import load_cluster
from simulator.description import DescriptionError, KeyFaults, load
from simulator.hardware.cluster import Cluster
from simulator.hardware.node import Node

GPU = {
    "vendor": "x",
    "architecture": "volta",
    "sms": 80,
    "clock": "1.5 GHz",
    "dense_peak": {"fp16": "125 TFLOP/s"},
    "memory": {"capacity": "16 GiB", "bandwidth": "900 GB/s"},
    "scale_up": {"kind": "nvlink2", "bandwidth": "150 GB/s"},
    "host_link": {"kind": "pcie3-x16", "bandwidth": "16 GB/s"},
    "launch": "5 us",
}
NIC = {"vendor": "x", "bandwidth": "100 Gb/s", "latency": "1 us"}
SWITCH = {"kind": "single_switch", "hop_latency": "0.5 us"}


def node(num_gpus: int = 8, num_nics: int = 8, **changes: object) -> dict[str, object]:
    plain = {
        "gpu": GPU,
        "num_gpus": num_gpus,
        "nic": NIC,
        "num_nics": num_nics,
        "interconnect": {"kind": "nvswitch"},
    }
    return plain | changes


def cluster(**changes: object) -> Cluster:
    found: Cluster = load("cluster", {"node": node(), "num_nodes": 4, "fabric": SWITCH} | changes)
    return found


def faults(kind: str, description: dict[str, object]) -> str:
    with pytest.raises(DescriptionError) as caught:
        load(kind, description)
    return str(caught.value)


@given(num_gpus=st.integers(1, 16), num_nodes=st.integers(1, 9), scale=st.integers(1, 200))
def test_scaling_gives_what_was_asked_for_or_says_what_would_do(
    num_gpus: int, num_nodes: int, scale: int
) -> None:
    start = cluster(node=node(num_gpus=num_gpus), num_nodes=num_nodes)
    assert start.num_gpus == num_gpus * num_nodes
    if scale % num_gpus and scale > num_gpus:
        low = scale // num_gpus * num_gpus
        with pytest.raises(KeyFaults, match=f"try {low} or {low + num_gpus}"):
            start.scaled(gpus=scale)
    else:
        scaled = start.scaled(gpus=scale)
        assert scaled.num_gpus == scale
        assert scaled.total_nodes == max(1, scale // num_gpus) == len(scaled.nodes)


def test_fewer_gpus_than_a_node_has_leave_one_smaller_node() -> None:
    small = cluster().scaled(gpus=2)
    assert (small.total_nodes, small.nodes[0].num_gpus, small.nodes[0].num_nics) == (1, 2, 2)
    one = cluster().scaled(gpus=1)
    assert one.nodes[0].interconnect.kind == "none"


@given(num_gpus=st.integers(1, 16), num_nics=st.integers(1, 16), kept=st.integers(1, 16))
def test_gpus_left_in_a_smaller_node_keep_their_nics(num_gpus: int, num_nics: int, kept: int) -> None:
    whole: Node = load("node", node(num_gpus=num_gpus, num_nics=num_nics))
    kept = min(kept, num_gpus)
    part = whole.with_gpus(kept)
    used = {whole.nic_of(gpu) for gpu in range(kept)}
    assert part.num_nics >= len(used)
    assert max(used) < num_nics


def test_groups_are_scaled_in_proportion() -> None:
    groups = [{"node": node(num_gpus=8), "num_nodes": 2}, {"node": node(num_gpus=4), "num_nodes": 4}]
    mixed: Cluster = load("cluster", {"groups": groups, "fabric": SWITCH})
    assert mixed.num_gpus == 32
    assert [group.num_nodes for group in mixed.scaled(gpus=96).groups] == [6, 12]
    assert [group.num_nodes for group in mixed.scaled(gpus=16).groups] == [1, 2]
    with pytest.raises(KeyFaults, match=r"2 x 8 \+ 4 x 4 = 32"):
        mixed.scaled(gpus=40)


def test_a_fabric_of_fixed_size_limits_the_nodes() -> None:
    torus = {"kind": "torus", "dimensions": [2, 2], "bandwidth": "10 GB/s", "hop_latency": "1 us"}
    start = cluster(fabric=torus)
    with pytest.raises(KeyFaults, match="holds 4 nodes, but the cluster has 8"):
        start.scaled(gpus=64)
    assert "fabric: holds 4 nodes, but the cluster has 5" in faults(
        "cluster", {"node": node(), "num_nodes": 5, "fabric": torus}
    )


def test_gpus_that_do_not_fill_nodes_are_bad_input(design: Path) -> None:
    with pytest.raises(DescriptionError, match=r"--gpus 12: gpus: 12 GPUs are 1\.5 nodes of 8; try 8 or 16"):
        load_cluster("cluster.yaml", gpus=12)
    with pytest.raises(DescriptionError, match="at least 1 is needed"):
        load_cluster("cluster.yaml", gpus=0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_nics": 0}, "num_nics: how many"),
        ({"nic": None}, "num_nics: 8 NICs of which kind?"),
        ({"interconnect": {"kind": "none"}}, "interconnect.kind: 8 GPUs need an interconnect"),
        ({"interconnect": {"kind": "pcie", "in_network_reduction": True}}, "pcie has no switch to reduce in"),
        ({"interconnect": {"kind": "nvlink_mesh"}}, "interconnect.links: nvlink_mesh needs its links"),
        ({"interconnect": {"kind": "nvswitch", "links": [[0, 1, 2]]}}, "nvswitch takes no links"),
        ({"interconnect": {"kind": "nvlink_mesh", "links": [[0, 8, 1]]}}, "links.0: [0, 8] is no pair"),
        (
            {"interconnect": {"kind": "nvlink_mesh", "links": [[0, 1, 1], [1, 0, 1]]}},
            "links.1: the pair [1, 0] is listed",
        ),
        ({"gpu": GPU | {"scale_up": None}}, "nvswitch needs scale_up links"),
        ({"num_gpus": 0}, "num_gpus: must be greater than or equal to 1 (is 0)"),
    ],
)
def test_a_node_that_cannot_be_is_refused(changes: dict[str, object], expected: str) -> None:
    assert expected in faults("node", node() | changes)


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ({"fabric": SWITCH}, "node: which node?"),
        ({"fabric": SWITCH, "node": node()}, "num_nodes: how many nodes?"),
        (
            {"fabric": SWITCH, "node": node(), "num_nodes": 1, "groups": [{"node": node(), "num_nodes": 1}]},
            "groups: give",
        ),
        ({"fabric": SWITCH, "node": node(nic=None, num_nics=0), "num_nodes": 2}, "node: has no NIC"),
        ({"node": node(), "num_nodes": 2}, "fabric: is missing"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(description: dict[str, object], expected: str) -> None:
    assert expected in faults("cluster", description)


def test_one_node_needs_no_network() -> None:
    alone: Cluster = load("cluster", {"fabric": SWITCH, "node": node(nic=None, num_nics=0), "num_nodes": 1})
    assert alone.num_gpus == 8


def test_an_unknown_number_format_is_an_error_not_a_guess() -> None:
    with pytest.raises(ValueError, match=r"has no fp8 peak \(it has fp16\)"):
        cluster().nodes[0].gpu.peak("fp8")


def test_oversubscription_and_uplinks_exclude_each_other() -> None:
    clos = {"kind": "leaf_spine", "nodes_per_leaf": 2, "num_spines": 2, "hop_latency": "1 us"}
    both = clos | {"oversubscription": 2, "uplink_bandwidth": "400 Gb/s"}
    assert "each follows from the other" in faults("fabric", both)
    assert load("fabric", clos | {"uplink_bandwidth": "400 Gb/s"}).uplink_bandwidth == 50e9
    assert load("fabric", both | {"oversubscription": None}).uplink_bandwidth == 50e9
    fabric = {"kind": "rail_optimized", "extends": "ndr-superpod", "oversubscription": None}
    assert load("fabric", fabric | {"uplink_bandwidth": "200 Gb/s"}).nodes_per_unit == 32
