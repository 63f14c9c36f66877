"""A job without a number of GPUs takes the most that its plan and batch divide over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workloads.job_size import for_job
from tests.program.scenarios import cluster, mixed_cluster, workload


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 12),
    num_gpus=st.sampled_from([1, 2, 4]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    batch=st.integers(1, 24),
)
def test_it_is_the_most_gpus_without_a_fault(
    num_nodes: int, num_gpus: int, tp: int, pp: int, batch: int
) -> None:
    machine = cluster(num_nodes, num_gpus, 1)
    job = workload(global_batch=batch, tp=tp, pp=pp)
    used = for_job(machine, job).num_gpus
    sizes = [n for n in range(1, machine.num_gpus + 1) if n < num_gpus or n % num_gpus == 0]
    possible = [n for n in sizes if not job.faults_on(n)]
    assert used == max(possible, default=machine.num_gpus)


def test_a_plan_that_says_its_width_gets_as_many_gpus() -> None:
    assert for_job(cluster(8, 4, 1), workload(global_batch=8, tp=2, dp=4)).num_gpus == 8
    whole = cluster(2, 4, 1)
    assert for_job(whole, workload(global_batch=8, tp=2, dp=8)) is whole


def test_a_mixed_cluster_keeps_its_proportions() -> None:
    machine = mixed_cluster(3, 3, 2, {"kind": "single_switch", "hop_latency": 5e-7})
    used = for_job(machine, workload(global_batch=8))
    assert used.num_gpus == 8 and [group.num_nodes for group in used.node_groups] == [2, 2]


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_cluster_that_suits_is_left_alone(gpus: int) -> None:
    machine = cluster(gpus, 1, 1)
    assert for_job(machine, workload(global_batch=8)) is machine
