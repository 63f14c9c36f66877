"""Groups of unequal GPUs whose collectives stand between kernels compute at the pace of the slowest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.hardware.cluster import Cluster
from simulator.program.builder import build
from tests.program.scenarios import FABRICS, LIBRARY, node, software, workload

SLOW = {"name": "slow-gpu", "clock": 0.7e9, "dense_peak": {"bf16": 100e12, "fp32": 10e12}}


def two_nodes(first: dict[str, Any], second: dict[str, Any]) -> Cluster:
    groups = [{"node": node(2, 2, **gpu), "num_nodes": 1} for gpu in (first, second)]
    return Cluster.model_validate({"name": "two", "groups": groups, "fabric": FABRICS[0]})


def step(machine: Cluster, **plan: Any) -> float:
    job = workload(global_batch=4, layers=2, **plan)
    return execute(build(machine, job, software(), LIBRARY).program).makespan


@pytest.mark.parametrize("overlap", [True, False])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parallel=st.booleans(), recompute=st.sampled_from(["none", "full"]))
def test_one_slow_node_in_every_group_slows_all_to_its_pace(
    overlap: bool, parallel: bool, recompute: str
) -> None:
    plan = {"tp": 4, "sequence_parallel": parallel, "recompute": recompute, "overlap": {"tp": overlap}}
    slow = step(two_nodes(SLOW, SLOW), **plan)
    assert step(two_nodes({}, SLOW), **plan) == pytest.approx(slow, rel=1e-9)
    assert step(two_nodes(SLOW, {}), **plan) == pytest.approx(slow, rel=1e-9)
    assert step(two_nodes({}, {}), **plan) < slow
