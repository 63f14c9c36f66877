"""Small cluster descriptions, and miniclusters that are taken down whatever the test does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from simulator.calibration.minicluster import lifecycle, state
from simulator.calibration.minicluster.privileges import reason_against
from simulator.hardware.cluster import Cluster
from simulator.hardware.gpu import GPU, HostLink, Memory
from simulator.hardware.nic import NIC
from simulator.hardware.node import Interconnect, Node

needs_namespaces = pytest.mark.skipif(reason_against() is not None, reason=str(reason_against()))


FABRIC = {"kind": "single_switch", "hop_latency": 60e-6}


def describe(num_nodes: int, megabits: float = 100, **fabric: Any) -> Cluster:
    """A cluster of one-rank nodes; with `fabric`, a leaf-spine one."""
    node = describe_node(megabits)
    return Cluster.model_validate({"node": node, "num_nodes": num_nodes, "fabric": describe_fabric(**fabric)})


def describe_node(megabits: float = 100) -> Node:
    return Node(
        gpu=GPU(
            name="cpu",
            vendor="any",
            architecture="ampere",
            sms=1,
            clock=1e9,
            dense_peak={"fp32": 1e9},
            memory=Memory(capacity=1e9, bandwidth=1e10),
            host_link=HostLink(kind="none", bandwidth=1e10),
            launch=0.0,
        ),
        num_gpus=1,
        nic=NIC(vendor="any", bandwidth=megabits * 125e3, latency=0.0),
        num_nics=1,
        interconnect=Interconnect(kind="none"),
    )


def describe_fabric(**fabric: Any) -> dict[str, Any]:
    return {"kind": "leaf_spine", "hop_latency": 60e-6, **fabric} if fabric else FABRIC


@pytest.fixture
def bring_up(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., state.Minicluster]]:
    """up(cluster, ...) under a name of this process; everything is down afterwards."""
    monkeypatch.setenv("CLUSTERSIM_RUN_DIR", str(tmp_path / "run"))
    names: list[str] = []

    def up(cluster: Any, **options: Any) -> state.Minicluster:
        name = f"test{os.getpid()}-{len(names)}"
        names.append(name)
        return lifecycle.up(name, cluster, **options)

    yield up
    for name in names:
        lifecycle.down(name)
