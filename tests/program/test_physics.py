"""FLOPs, bytes, memory and time keep their books on every plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from simulator.costs.memory import stage_state
from simulator.engine.engine import execute
from simulator.program.builder import build
from simulator.results.breakdown import breakdown, critical_class
from simulator.results.predict import executed_flops
from tests.program.scenarios import LIBRARY, cluster, software, workload
from tests.program.test_folding_is_exact import scenarios

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(scenarios())
def test_flops_sum_to_the_count_of_the_model(scenario: tuple[Any, Any, Any]) -> None:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    timeline = execute(built.program)
    model = {"compute": 0.0, "recompute": 0.0}
    for task in built.program.tasks:
        classes = {
            built.program.lanes[i].rank_class for i in task.lanes if built.program.lanes[i].name == "compute"
        }
        for phase in task.phases:
            for rank_class in classes:
                if phase.kind in model:
                    model[phase.kind] += phase.flops * built.program.members[rank_class]
    assert model["compute"] == pytest.approx(job.flops, rel=1e-9)
    assert executed_flops(built, timeline) == pytest.approx(sum(model.values()), rel=1e-9)
    assert (model["recompute"] > 0.0) == (job.plan.recompute == "full" or _recomputes_scores(built))


def _recomputes_scores(built: Any) -> bool:
    return built.setting.plan.recompute == "selective"


@QUICK
@given(scenarios())
def test_the_breakdown_sums_to_the_step(scenario: tuple[Any, Any, Any]) -> None:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    timeline = execute(built.program)
    shares = breakdown(built.program, timeline, critical_class(built.program, timeline))
    assert sum(shares.values()) == pytest.approx(timeline.makespan, rel=1e-9)
    assert min(shares.values()) >= -1e-12


@QUICK
@given(scenarios())
def test_no_link_carries_more_than_its_capacity_and_the_step_is_no_shorter_than_any_bound(
    scenario: tuple[Any, Any, Any],
) -> None:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    timeline = execute(built.program)
    assert np.all(timeline.utilization <= 1 + 1e-9)
    peak = machine.node_groups[0].node.gpu.peak("bf16")
    assert timeline.makespan >= job.flops / machine.num_gpus / peak * 0.999 or len(machine.node_groups) > 1


@QUICK
@given(scenarios())
def test_memory_ends_as_it_began(scenario: tuple[Any, Any, Any]) -> None:
    """Everything allocated during the step is freed, and residents equal the closed form."""
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    net: dict[tuple[int, str], float] = {}
    for task in built.program.tasks:
        for change in (*task.at_start, *task.at_end):
            key = (change.rank_class, change.kind)
            net[key] = net.get(key, 0.0) + change.amount
    assert all(abs(amount) < 1.0 for amount in net.values())
    for change in built.program.initial_memory:
        stage = built.stage_of_class[change.rank_class]
        layers = [p.layer for content in built.setting.content[stage] for p in content.layers]
        state = stage_state(layers, job, built.setting.shard, machine.num_gpus)
        assert change.amount == pytest.approx(getattr(state, change.kind))


def test_bytes_on_the_network_equal_what_the_rings_must_send() -> None:
    """Data-parallel all-reduce over 4 single-GPU nodes: every NIC sends 2(n-1)/n of the gradients."""
    job = workload(global_batch=4, zero=0)
    built = build(cluster(4, 1, 1), job, software(), LIBRARY)
    timeline = execute(built.program)
    gradients = 4.0 * sum(c.whole.dense for stage in built.setting.content for c in stage)
    (nic,) = [i for i, r in enumerate(built.program.resources) if r.kind == "nic_out"]
    drawn = float(timeline.use[nic]) * LIBRARY.algorithms["ring"]["simple"].nic
    assert drawn == pytest.approx(2 * 3 / 4 * gradients, rel=1e-9)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_sharding_moves_the_bytes_of_its_stage(zero: int) -> None:
    """ZeRO-1/2: reduce-scatter and all-gather once; ZeRO-3 gathers in forward and again in backward."""
    job = workload(global_batch=4, zero=zero, layers=2)
    built = build(cluster(4, 1, 1), job, software(), LIBRARY)
    counts: dict[str, int] = {}
    for task in built.program.tasks:
        counts[task.label] = counts.get(task.label, 0) + 1
    layers = 4  # embedding, two blocks, head
    if zero == 3:
        assert counts["gather parameters"] == 2 * layers - 1  # the last one of forward is still there
        assert counts["reduce gradients"] == sum(
            p.parameters.total > 0 for p in built.setting.content[0][0].units
        )
    else:
        assert counts["gather parameters"] == 1
