"""Small clusters of every kind, for tests that hold for all of them."""

from __future__ import annotations

from typing import Any

from simulator.hardware.cluster import Cluster, NodeGroup, Placement
from simulator.hardware.fabrics import (
    FABRICS,
    Dragonfly,
    Fabric,
    LeafSpine,
    Link,
    Links,
    RailOptimized,
    SingleSwitch,
    Torus,
)
from simulator.hardware.gpu import GPU, HostLink, Memory, ScaleUp
from simulator.hardware.nic import NIC
from simulator.hardware.node import Interconnect, Node

NIC_BANDWIDTH = 25e9
SCALE_UP_BANDWIDTH = 300e9
HOST_BANDWIDTH = 32e9
NIC_LATENCY = 1.5e-6
HOP = 0.5e-6
SCALE_UP_LATENCY = 0.7e-6

CUBE_MESH = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 2),
    (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
    (0, 4, 2), (1, 5, 2), (2, 6, 1), (3, 7, 1),
)  # fmt: skip

SPINES: dict[str, Any] = {"num_spines": 4, "hop_latency": HOP}


def gpu(**changes: Any) -> GPU:
    values: dict[str, Any] = {
        "name": "gpu",
        "vendor": "nobody",
        "architecture": "ampere",
        "sms": 108,
        "clock": 1.41e9,
        "dense_peak": {"bf16": 312e12},
        "memory": Memory(capacity=80 * 2**30, bandwidth=2e12),
        "scale_up": ScaleUp(kind="nvlink3", bandwidth=SCALE_UP_BANDWIDTH),
        "host_link": HostLink(kind="pcie4-x16", bandwidth=HOST_BANDWIDTH),
        "launch": 5e-6,
    }
    return GPU(**(values | changes))


def node(num_gpus: int = 4, num_nics: int = 4, kind: str = "nvswitch", **changes: Any) -> Node:
    values: dict[str, Any] = {
        "name": f"{kind}-{num_gpus}-{num_nics}",
        "gpu": gpu(),
        "num_gpus": num_gpus,
        "nic": NIC(name="nic", vendor="nobody", bandwidth=NIC_BANDWIDTH, latency=NIC_LATENCY),
        "num_nics": num_nics,
        "interconnect": Interconnect(kind=kind, latency=SCALE_UP_LATENCY),
    }
    return Node(**(values | changes))


def cube_mesh_node(**changes: Any) -> Node:
    interconnect = Interconnect(kind="nvlink_mesh", latency=SCALE_UP_LATENCY, links=CUBE_MESH)
    return node(8, 4, "nvlink_mesh", **({"interconnect": interconnect} | changes))


def star_links(num_nodes: int, bandwidth: float = 1e12, latency: float = HOP) -> Links:
    """Every node cabled to one switch."""
    cables = (Link(source=i, target="hub", bandwidth=bandwidth, latency=latency) for i in range(num_nodes))
    return Links(links=tuple(cables))


FABRICS_OF_EIGHT_NODES: dict[str, Fabric] = {
    "single_switch": SingleSwitch(hop_latency=HOP),
    "leaf_spine": LeafSpine(nodes_per_leaf=2, oversubscription=2.0, **SPINES),
    "leaf_spine hashed": LeafSpine(nodes_per_leaf=2, ecmp="hashed", **SPINES),
    "leaf_spine hashed, several paths": LeafSpine(
        nodes_per_leaf=2, ecmp="hashed", paths_per_flow=3, **SPINES
    ),
    "leaf_spine pods": LeafSpine(nodes_per_leaf=1, nodes_per_pod=2, core_oversubscription=3.0, **SPINES),
    "leaf_spine pods hashed": LeafSpine(nodes_per_leaf=1, nodes_per_pod=4, ecmp="hashed", **SPINES),
    "rail_optimized": RailOptimized(nodes_per_unit=2, oversubscription=2.0, **SPINES),
    "rail_optimized spine": RailOptimized(nodes_per_unit=4, cross_rail="spine", **SPINES),
    "rail_optimized pods": RailOptimized(nodes_per_unit=1, nodes_per_pod=2, **SPINES),
    "dragonfly": Dragonfly(
        nodes_per_router=1, routers_per_group=2, local_bandwidth=40e9, global_bandwidth=60e9, hop_latency=HOP
    ),
    "dragonfly valiant": Dragonfly(
        nodes_per_router=1,
        routers_per_group=2,
        local_bandwidth=40e9,
        global_bandwidth=60e9,
        hop_latency=HOP,
        minimal_share=0.25,
    ),
    "torus": Torus(dimensions=(4, 2), bandwidth=50e9, hop_latency=HOP),
    "torus 3d": Torus(dimensions=(2, 2, 2), bandwidth=50e9, hop_latency=HOP),
    "torus open": Torus(dimensions=(8,), bandwidth=50e9, hop_latency=HOP, wrap=False),
    "links": star_links(8),
}


def fabrics() -> list[tuple[str, Fabric]]:
    """Samples for eight nodes, at least one of every registered kind.

    Raises LookupError for a kind without a sample: a new fabric joins the conformance suite by adding one.
    """
    missing = set(FABRICS) - {fabric.kind for fabric in FABRICS_OF_EIGHT_NODES.values()}  # type: ignore[attr-defined]
    if missing:
        raise LookupError(f"no sample of {', '.join(sorted(missing))} in tests/hardware/samples.py")
    return list(FABRICS_OF_EIGHT_NODES.items())


def nodes() -> dict[str, Node]:
    """Nodes with every interconnect, and with fewer, as many and more NICs than GPUs."""
    return {
        "switched": node(),
        "shared NICs": node(4, 2),
        "unevenly shared NICs": node(3, 2),
        "bundled NICs": node(2, 5),
        "mesh": cube_mesh_node(),
        "pcie": node(4, 1, "pcie"),
        "pcie with a root": node(
            4, 4, "pcie", interconnect=Interconnect(kind="pcie", latency=1e-6, root_bandwidth=20e9)
        ),
        "alone": node(1, 1, "none"),
        "NIC on the GPU": node(2, 2, nic_attachment="gpu"),
    }


def cluster(fabric: Fabric, each: Node | None = None, num_nodes: int = 8, **changes: Any) -> Cluster:
    return Cluster(name="cluster", node=each or node(), num_nodes=num_nodes, fabric=fabric, **changes)


def mixed_cluster(fabric: Fabric) -> Cluster:
    """Eight nodes of three kinds."""
    groups = tuple(
        NodeGroup(node=each, num_nodes=count)
        for each, count in ((node(), 3), (cube_mesh_node(), 2), (node(2, 1), 3))
    )
    return Cluster(name="mixed", groups=groups, fabric=fabric)


def spread(seed: int | None = None) -> Placement:
    return Placement(policy="spread", seed=0) if seed is None else Placement(policy="random", seed=seed)
