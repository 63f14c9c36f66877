"""Sensitivities agree with simulating slightly better hardware."""

from __future__ import annotations

from functools import cache
from math import log
from typing import Any

import pytest

from simulator import load_cluster, load_workload
from simulator.results.sensitivity import TIMES
from simulator.simulation import simulate
from simulator.sweeps.changes import Design
from tests.program.scenarios import cluster, workload

SLIGHTLY = 1.002


def faster(design: Design, *keys: str) -> float:
    """d(log step) / d(log of all keys together), by simulation."""

    def step(factor: float) -> float:
        changed = design
        for key in keys:
            if (
                key in MATH
                and key.rpartition(".")[2] not in design.cluster.node_groups[0].node.gpu.dense_peak
            ):
                continue
            changed = changed.with_value(key, factor * design.value(key))
        return simulate(changed.cluster, changed.workload).step_time_s

    return (log(step(SLIGHTLY)) - log(step(1 / SLIGHTLY))) / (2 * log(SLIGHTLY))


def large(**plan: Any) -> Any:
    return workload(
        layers=4, hidden=4096, heads=32, vocab=32000, sequence_length=2048, global_batch=32, **plan
    )


def catalogue(cluster: str, gpus: int, workload: str, **settings: Any) -> Design:
    return Design(load_cluster(cluster, gpus=gpus), load_workload(workload, settings))


DESIGNS = {
    "one GPU": lambda: Design(cluster(1, 1, 1), large()),
    "collectives beside kernels": lambda: Design(cluster(1, 8, 8), large(tp=8, sequence_parallel=True)),
    "collectives that hide": lambda: Design(cluster(1, 8, 8), large(tp=8)),
    "pipeline": lambda: Design(cluster(4, 1, 1), large(pp=4, schedule="1f1b")),
    "tp in a pipeline": lambda: Design(
        cluster(1, 4, 4), large(tp=2, pp=2, recompute="full", attention="unfused")
    ),
    "sums at the end": lambda: Design(cluster(8, 1, 1), large(overlap={"dp_gradients": False})),
    "sums beside kernels": lambda: Design(cluster(1, 8, 8), large(overlap={"dp_gradients": True})),
    "power limit": lambda: catalogue("selene", 64, "gpt3-175b", global_batch=16),
    "shards beside kernels": lambda: catalogue("hgx-h100-cluster", 16, "llama2-7b"),
    # FSDP2's own copies among the kernels leave 0.004 of this design with the wrong resource
    "copies beside sums": lambda: catalogue(
        "hgx-h100-cluster", 16, "llama3-70b-offload", **{"plan.software": "fsdp-2023-torch21"}
    ),
    "mixture of experts": lambda: catalogue("hgx-h100-cluster", 32, "mixtral-8x7b"),
}
MATH = [f"cluster.node.gpu.dense_peak.{name}" for name in ("bf16", "fp16", "fp32", "tf32", "fp8")]


@cache
def claimed(design: str) -> dict[str, float]:
    given = DESIGNS[design]()
    return simulate(given.cluster, given.workload).sensitivity


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("tensor_core", MATH),
        ("hbm", ["cluster.node.gpu.memory.bandwidth"]),
        ("nvlink", ["cluster.node.gpu.scale_up.bandwidth"]),
        ("nic", ["cluster.node.nic.bandwidth"]),
        ("host_link", ["cluster.node.gpu.host_link.bandwidth"]),
    ],
)
def test_sensitivity_agrees_with_finite_differences(design: str, name: str, keys: list[str]) -> None:
    found = claimed(design).get(name, 0.0)
    assert found == pytest.approx(faster(DESIGNS[design](), *keys), abs=1e-3)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_step_takes_half_as_long_where_everything_is_twice_as_fast(design: str) -> None:
    shares = claimed(design).items()
    assert sum(share if name in TIMES else -share for name, share in shares) == pytest.approx(1.0)
