"""How long does one warm prediction take, and how does that grow with GPUs, layers, micro-batches and kinds of GPU?

Run with `pytest benchmarks`; `--benchmark-json FILE` writes all figures. The limits catch a lost saving on a busy
machine; the targets that an idle one meets stand in docs/performance.md.
"""

from __future__ import annotations

import pytest

import simulator
from simulator.hardware.cluster import Cluster
from simulator.simulation import simulate
from simulator.workloads.workload import Workload

SLACK = 8.0
"""A busy machine may be this many times slower than the targets."""


def gpt3(gpus: int, **settings: object) -> tuple[Cluster, Workload]:
    return simulator.load_cluster("selene", gpus), simulator.load_workload("gpt3-175b", settings)


def measured(benchmark, cluster: Cluster, workload: Workload, rounds: int = 7) -> float:  # type: ignore[no-untyped-def]
    """Best of a few warm predictions, seconds."""
    prediction = benchmark.pedantic(simulate, (cluster, workload), rounds=rounds, warmup_rounds=2)
    engine = prediction.meta["engine"]
    benchmark.extra_info.update(tasks=engine["tasks"], classes=len(prediction.built.program.rank_classes))
    return float(benchmark.stats.stats.min)


def test_gpt3_175b_on_1024_a100(benchmark) -> None:  # type: ignore[no-untyped-def]
    assert measured(benchmark, *gpt3(1024)) < SLACK * 0.05


def test_llama3_405b_on_16384_h100(benchmark) -> None:  # type: ignore[no-untyped-def]
    cluster = simulator.load_cluster("h100-16k", 16384)
    assert measured(benchmark, cluster, simulator.load_workload("llama3-405b"), rounds=5) < SLACK * 0.2


WIDTHS = (64, 512, 1024, 8192, 131072)


@pytest.mark.parametrize("gpus", WIDTHS)
def test_growth_with_gpus(benchmark, gpus: int) -> None:  # type: ignore[no-untyped-def]
    """The batch grows with the replicas, so that every pipeline does the same."""
    cluster = simulator.load_cluster("dgx-a100-superpod", gpus)
    workload = simulator.load_workload("gpt3-175b", {"global_batch": gpus // 64 * 96})
    assert measured(benchmark, cluster, workload, rounds=5) < SLACK * 0.1


@pytest.mark.parametrize("rounds", [2, 4, 8, 16, 32])
def test_growth_with_micro_batches(benchmark, rounds: int) -> None:  # type: ignore[no-untyped-def]
    """`rounds` times pp micro-batches per pipeline."""
    assert measured(benchmark, *gpt3(64, global_batch=8 * rounds)) < SLACK * 0.1


@pytest.mark.parametrize("layers", [48, 96, 192, 384])
def test_growth_with_layers(benchmark, layers: int) -> None:  # type: ignore[no-untyped-def]
    assert measured(benchmark, *gpt3(64, **{"model.layers": layers, "global_batch": 96})) < SLACK * 0.2


@pytest.mark.parametrize("kinds", [1, 2, 4])
def test_growth_with_kinds_of_gpu(benchmark, kinds: int) -> None:  # type: ignore[no-untyped-def]
    """Groups of nodes whose GPUs differ in clock-bound peak: every kind is a class of its own on every stage."""
    node = simulator.load_cluster("selene").node
    assert node is not None
    groups = []
    for number in range(kinds):
        peaks = {name: rate * (1 - 0.1 * number) for name, rate in node.gpu.dense_peak.items()}
        gpu = node.gpu.model_copy(update={"dense_peak": peaks, "name": f"kind {number}"})
        groups.append({"node": node.model_copy(update={"gpu": gpu}), "num_nodes": 32 // kinds})
    cluster = simulator.load_cluster("selene")
    mixed = Cluster.model_validate({"name": "mixed", "groups": groups, "fabric": cluster.fabric})
    workload = simulator.load_workload(
        "gpt3-175b", {"global_batch": 384, "plan.order": ["tp", "pp", "cp", "dp"]}
    )
    assert measured(benchmark, mixed, workload, rounds=3) < SLACK * 0.1 * kinds
