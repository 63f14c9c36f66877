"""The hardware catalogue: everything loads, every number has a source, and datasheet figures fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from simulator.description import catalogue, load
from simulator.hardware.cluster import Cluster
from simulator.hardware.fabrics import Fabric
from simulator.hardware.gpu import GPU
from simulator.hardware.nic import NIC
from simulator.hardware.node import Node
from simulator.hardware.topology import build_topology

REFERENCES = {"gpu", "nic", "node", "fabric", "name", "sources"}


def described(kind: str) -> list[tuple[str, Any]]:
    return [(name, load(kind, name)) for name in catalogue.names(kind)]


GPUS: dict[str, GPU] = dict(described("gpu"))
NODES: dict[str, Node] = dict(described("node"))
CLUSTERS: dict[str, Cluster] = dict(described("cluster"))


def numbers(value: Any, key: str = "") -> Iterator[str]:
    """Dotted keys of all numbers that a description states itself (not those of descriptions it refers to)."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int | float):
        yield key
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in REFERENCES or (key and name != "sources"):
                yield from numbers(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item, key)


@pytest.mark.parametrize("kind", ["gpu", "nic", "node", "fabric"])
def test_every_number_has_a_source(kind: str) -> None:
    for name, description in described(kind):
        assert isinstance(description, GPU | NIC | Node | Fabric)
        stated = description.model_dump(exclude_unset=True)
        for key in numbers(stated):
            prefixes = {key} | {key[:i] for i, letter in enumerate(key) if letter == "."}
            assert prefixes & set(description.sources), f"{kind} {name}: {key} has no source"


@pytest.mark.parametrize("kind", ["gpu", "nic", "node", "fabric"])
def test_every_source_says_something(kind: str) -> None:
    for name, description in described(kind):
        for key, text in description.sources.items():
            assert len(text) >= 7, f"{kind} {name}: the source of {key} is {text!r}"


@pytest.mark.parametrize("name", catalogue.names("cluster"))
def test_every_cluster_gets_a_topology_with_routes_between_its_ends(name: str) -> None:
    topology = build_topology(CLUSTERS[name])
    assert topology.num_gpus == CLUSTERS[name].num_gpus
    ends = np.array([0, topology.num_gpus - 1])
    assert len(topology.routes(ends, ends[::-1])) >= 4
    assert (topology.latency(ends, ends[::-1]) > 0).all()


@pytest.mark.parametrize("name", GPUS)
def test_peaks_rise_as_formats_narrow(name: str) -> None:
    gpu = GPUS[name]
    order = ["fp64", "fp32", "tf32", "bf16", "fp8", "nvfp4"]
    peaks = [gpu.dense_peak[key] for key in order if key in gpu.dense_peak]
    assert peaks == sorted(peaks)
    assert gpu.dense_peak.get("bf16", 0) in (gpu.dense_peak.get("fp16"), 0) or "fp16" not in gpu.dense_peak


FLOPS_PER_CYCLE_AND_SM = {
    "volta": 1024,
    "turing": 1024,
    "ampere": 2048,
    "ada": 1024,
    "hopper": 4096,
    "blackwell": 8192,
}


@pytest.mark.parametrize("name", [n for n, g in GPUS.items() if g.architecture in FLOPS_PER_CYCLE_AND_SM])
def test_tensor_peaks_are_units_times_clock(name: str) -> None:
    """NVIDIA's whitepapers: dense fp16 FLOP per cycle and SM on tensor cores."""
    gpu = GPUS[name]
    derived = gpu.sms * gpu.clock * FLOPS_PER_CYCLE_AND_SM[gpu.architecture]
    assert gpu.dense_peak["fp16"] == pytest.approx(derived, rel=0.01)


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("v100-sxm2-32", "fp16", 125),
        ("a100-sxm-80", "bf16", 312),
        ("h100-sxm", "bf16", 989.4),
        ("h100-sxm", "fp8", 1978.9),
        ("h200", "bf16", 989.4),
        ("b200", "bf16", 2250),
        ("b200", "nvfp4", 9000),
        ("gb200", "fp8", 5000),
        ("gb200", "nvfp4", 10000),
        ("mi250x-gcd", "bf16", 191.5),
        ("mi300x", "fp8", 2614.9),
        ("tpu-v4", "bf16", 275),
    ],
)
def test_published_dense_peaks(name: str, dtype: str, tera: float) -> None:
    assert GPUS[name].peak(dtype) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize("name", GPUS)
def test_machine_balance_is_that_of_an_accelerator(name: str) -> None:
    """Peak FLOP per byte of memory traffic lies between 22 (TITAN Xp, fp32) and 450 (L40S) on everything so far."""
    gpu = GPUS[name]
    widest = max(gpu.dense_peak.get(dtype, 0.0) for dtype in ("bf16", "fp16", "fp32"))
    if name.startswith(("emulated", "cpu")):
        pytest.skip("no real accelerator")
    assert 20 < widest / gpu.memory.bandwidth < 450
    assert 11 * 2**30 < gpu.memory.capacity < 300 * 2**30


@pytest.mark.parametrize("name", NODES)
def test_scale_up_is_faster_than_the_network(name: str) -> None:
    node = NODES[name]
    if node.nic is None or node.gpu.scale_up is None or node.interconnect.kind in ("pcie", "none"):
        pytest.skip("no scale-up network")
    assert node.gpu.scale_up.bandwidth * node.num_gpus > 2 * node.nic.bandwidth * node.num_nics


@pytest.mark.parametrize("name", [n for n, node in NODES.items() if node.interconnect.links])
def test_meshes_use_up_the_lanes_of_their_gpus(name: str) -> None:
    node = NODES[name]
    lanes = np.zeros(node.num_gpus)
    for a, b, count in node.interconnect.links:
        lanes[[a, b]] += count
    assert node.gpu.scale_up is not None
    assert lanes.max() == node.gpu.scale_up.lanes
    assert lanes.min() >= node.gpu.scale_up.lanes - 1


def test_frontier_has_the_global_bandwidth_it_is_known_for() -> None:
    """270 TB/s in each direction over all pairs of its 74 groups (Atchley et al., SC 2023)."""
    topology = build_topology(CLUSTERS["frontier"])
    on_global = topology.kind == topology.kind_names.index("global")
    assert topology.capacity[on_global].sum() / 2 == pytest.approx(270e12, rel=0.01)


def test_a_tpu_v4_pod_has_the_bisection_of_its_torus() -> None:
    """Two cuts of 16 x 16 links of 50 GB/s."""
    assert build_topology(CLUSTERS["tpu-v4-pod"]).bisection == pytest.approx(2 * 256 * 50e9)


def test_superpods_have_full_bisection() -> None:
    for name, nic in (("selene", 25e9), ("dgx-h100-superpod", 50e9)):
        cluster = CLUSTERS[name]
        assert build_topology(cluster).bisection == pytest.approx(cluster.num_gpus / 2 * nic)


@pytest.mark.parametrize("name", ["4x4x4", "8x8x8"])
def test_a_tpu_v5p_slice_is_a_torus_of_its_own(name: str) -> None:
    """Its rings are closed: twice the links of a cross-section join its halves."""
    side = int(name[0])
    assert CLUSTERS[f"tpu-v5p-{name}"].num_gpus == side**3
    assert build_topology(CLUSTERS[f"tpu-v5p-{name}"]).bisection == pytest.approx(2 * side**2 * 100e9)
