"""Remedies are simulated plans: applied by hand each gives what was promised, and fits."""

from __future__ import annotations

import pytest

import simulator
from simulator.results.remedies import needed_gpus, remedies
from tests.results.predictions import from_catalogue

BATCH = {"global_batch": 8, "plan.micro_batch": 2}


def test_a_plan_that_fits_needs_no_remedy() -> None:
    assert from_catalogue().memory.fits
    assert from_catalogue().remedies == ()


def test_each_remedy_applied_by_hand_fits_and_takes_as_long_as_promised() -> None:
    prediction = from_catalogue(pp=4)
    assert not prediction.memory.fits
    found = prediction.remedies
    assert len(found) >= 2
    assert [one.step_time_s for one in found] == sorted(one.step_time_s for one in found)
    for one in found:
        settings = {"global_batch": 48, "plan.pp": 4, **one.settings}
        again = simulator.simulate(prediction.cluster, simulator.load_workload("gpt3-175b", settings))
        assert again.memory.fits
        assert again.memory.peak_bytes == pytest.approx(one.peak_bytes)
        assert again.step_time_s == pytest.approx(one.step_time_s)
        assert all(f"--set {key}=" in one.command for key in one.settings)


def test_changes_are_combined_where_one_alone_is_not_enough() -> None:
    cluster = simulator.load_cluster("selene", gpus=16, overrides={"node.gpu.memory.capacity": "24 GiB"})
    workload = simulator.load_workload("megatron-22b", BATCH)
    found = remedies(cluster, workload)
    assert found and {len(one.settings) for one in found} == {2}
    assert all(one.peak_bytes <= one.capacity_bytes == 24 * 2**30 for one in found)
    alone = [{key: value} for one in found for key, value in one.settings.items()]
    changed = [simulator.load_workload("megatron-22b", BATCH | one) for one in alone]
    assert not [one for one in changed if simulator.simulate(cluster, one).memory.fits]


def test_where_the_state_alone_exceeds_all_memory_the_number_of_gpus_it_needs_is_told() -> None:
    cluster = simulator.load_cluster("selene", gpus=8)
    workload = simulator.load_workload("gpt3-175b", {"global_batch": 8, "plan.pp": 1, "plan.vpp": 1})
    # fp16 with 16-bit gradients: 2 + 2 + 12 bytes per parameter (Rajbhandari et al. 2020)
    state = 16 * workload.model.num_parameters
    assert needed_gpus(cluster, workload) == -(-state // cluster.node_groups[0].node.gpu.memory.capacity)
    assert remedies(cluster, workload) == ()
