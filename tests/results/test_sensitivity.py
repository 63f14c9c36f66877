"""Sensitivities agree with simulating slightly better hardware."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from simulator.simulation import simulate
from simulator.sweeps.changes import Design
from tests.program.scenarios import cluster, workload

SLIGHTLY = 1.002


def faster(design: Design, *keys: str) -> float:
    """d(log step) / d(log of all keys together), by simulation."""

    def step(factor: float) -> float:
        changed = design
        for key in keys:
            changed = changed.with_value(key, factor * design.value(key))
        return simulate(changed.cluster, changed.workload).step_time_s

    return (log(step(SLIGHTLY)) - log(step(1 / SLIGHTLY))) / (2 * log(SLIGHTLY))


def large(**plan: Any) -> Any:
    return workload(
        layers=4, hidden=4096, heads=32, vocab=32000, sequence_length=2048, global_batch=32, **plan
    )


DESIGNS = [
    Design(cluster(1, 1, 1), large()),
    Design(cluster(1, 8, 8), large(tp=8, sequence_parallel=True)),
    Design(cluster(4, 1, 1), large(pp=4, schedule="1f1b")),
    Design(cluster(1, 4, 4), large(tp=2, pp=2, recompute="full", attention="unfused")),
    Design(cluster(8, 1, 1), large(overlap={"dp_gradients": False})),
]
MATH = [f"cluster.node.gpu.dense_peak.{name}" for name in ("bf16", "fp16", "fp32", "tf32")]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("tensor_core", MATH),
        ("hbm", ["cluster.node.gpu.memory.bandwidth"]),
        ("nvlink", ["cluster.node.gpu.scale_up.bandwidth"]),
        ("nic", ["cluster.node.nic.bandwidth"]),
    ],
)
def test_sensitivity_agrees_with_finite_differences(design: Design, name: str, keys: list[str]) -> None:
    prediction = simulate(design.cluster, design.workload)
    # Beside a collective of the same layer, all of a kernel's time counts to the kernel, also what the collective costs
    # it and what would pass waiting for the collective anyway.
    beside = 0.04 if design.workload.plan.sequence_parallel and name in ("tensor_core", "nvlink") else 0.02
    assert prediction.sensitivity.get(name, 0.0) == pytest.approx(faster(design, *keys), abs=beside)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_whole_step_is_explained(design: Design) -> None:
    shares = simulate(design.cluster, design.workload).sensitivity
    assert sum(abs(share) for share in shares.values()) == pytest.approx(1.0, abs=0.03)
