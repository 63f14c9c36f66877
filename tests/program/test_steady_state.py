"""Leaving out the repeating middle of a pipeline changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.engine.timeline import Timeline
from simulator.program.builder import Built, blueprint
from simulator.results.breakdown import breakdown, critical_class
from simulator.results.utilization import executed_flops
from simulator.simulation import SimulationOptions, run
from tests.program.scenarios import FABRICS, LIBRARY, cluster, mixed_cluster, software, workload
from tests.program.test_folding_is_exact import SOFTWARE


@st.composite
def long_pipelines(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    pp = draw(st.sampled_from([1, 2, 3, 4]))
    vpp = draw(st.sampled_from([1, 2] if pp > 1 else [1]))
    tp = draw(st.sampled_from([1, 2]))
    dp = draw(st.sampled_from([1, 2]))
    layers = pp * vpp * draw(st.sampled_from([1, 2]))
    count = pp * draw(st.integers(8, 14)) if vpp > 1 else draw(st.integers(20, 60))
    zero = draw(st.sampled_from([0, 1, 3] if pp == 1 else [0, 1]))
    recompute = draw(st.sampled_from(["none", "full"]))
    job = workload(
        layers=layers, global_batch=dp * count, tp=tp, pp=pp, vpp=vpp, zero=zero, recompute=recompute
    )
    machine = cluster(pp * dp, tp, 1, dict(draw(st.sampled_from(FABRICS))))
    return machine, job, draw(st.sampled_from((*SOFTWARE, software(launch=3e-5, launch_backward=2e-5))))


def execute_both(scenario: tuple[Any, Any, Any]) -> tuple[Built, Timeline, Built, Timeline]:
    plan = blueprint(*scenario, LIBRARY)
    short = run(plan, SimulationOptions())
    return *short, *run(plan, SimulationOptions(periodic=False))


@st.composite
def unequal_pipelines(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Replicas that run on one kind of GPU each, or (order) of which each has both."""
    tp, pp = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3]))
    vpp = draw(st.sampled_from([1, 2] if pp > 1 else [1]))
    fast, slow = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    count = pp * draw(st.integers(8, 14)) if vpp > 1 else draw(st.integers(20, 60))
    plan = {"tp": tp, "pp": pp, "vpp": vpp, "zero": draw(st.sampled_from([0, 1] if pp > 1 else [0, 1, 2]))}
    plan["order"] = draw(st.sampled_from([("tp", "pp", "cp", "dp"), ("tp", "cp", "dp", "pp")]))
    job = workload(layers=2 * pp * vpp, global_batch=(fast + slow) * count, **plan)
    machine = mixed_cluster(fast * pp, slow * pp, tp, dict(draw(st.sampled_from(FABRICS))))
    return machine, job, draw(st.sampled_from((*SOFTWARE, software(launch=3e-5, launch_backward=2e-5))))


def check_repetition(scenario: tuple[Any, Any, Any], also: int | None = None) -> None:
    """Against the whole step; where its time goes on the rank class that sets the pace, and on another one."""
    short, timeline, long, whole = execute_both(scenario)
    assert timeline.makespan == pytest.approx(whole.makespan, rel=1e-9)
    assert executed_flops(short, timeline) == pytest.approx(executed_flops(long, whole), rel=1e-9)
    assert timeline.use == pytest.approx(whole.use, rel=1e-9)
    assert [m.bytes for m in timeline.memory] == pytest.approx([m.bytes for m in whole.memory])
    critical = critical_class(short.program, timeline)
    for rank_class in {critical, critical if also is None else also}:
        ours = breakdown(short.program, timeline, rank_class)
        assert sum(ours.values()) == pytest.approx(timeline.makespan, rel=1e-9)
        theirs = breakdown(long.program, whole, rank_class)
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-7 * whole.makespan)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(long_pipelines())
def test_repetition_gives_the_whole_step(scenario: tuple[Any, Any, Any]) -> None:
    check_repetition(scenario, also=0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(unequal_pipelines())
def test_each_pipeline_repeats_itself_after_its_own_time(scenario: tuple[Any, Any, Any]) -> None:
    check_repetition(scenario)


def test_pipelines_of_their_own_are_left_out_by_as_many_micro_batches() -> None:
    machine = mixed_cluster(2, 2, 1, dict(FABRICS[0]))
    job = workload(layers=4, global_batch=2 * 60, pp=2, order=("tp", "pp", "cp", "dp"))
    short, timeline, _, whole = execute_both((machine, job, software()))
    fast, slow = sorted(timeline.repetitions, key=lambda one: one.seconds)
    assert fast.count == slow.count and slow.seconds > 1.1 * fast.seconds
    assert len(short.program.tasks) < len(whole.start) / 3
    late = [timeline.late[min(one.classes)] for one in (fast, slow)]
    assert late == pytest.approx([0.0, slow.left_out - fast.left_out])
    begins = [min(timeline.start[short.program.queues[0]]) for one in (fast, slow)]
    assert min(begins) == 0.0


@pytest.mark.parametrize(("pp", "vpp"), [(4, 1), (4, 2), (1, 1)])
def test_a_long_step_costs_no_more_tasks_than_a_short_one(pp: int, vpp: int) -> None:
    machine = cluster(pp, 1, 1)
    sizes = []
    for count in (64, 1024):
        job = workload(layers=8, global_batch=count, pp=pp, vpp=vpp)
        built, timeline = run(blueprint(machine, job, software(), LIBRARY), SimulationOptions())
        assert timeline.repetitions
        sizes.append(len(built.program.tasks))
    assert sizes[0] == sizes[1]


def test_what_differs_from_one_micro_batch_to_the_next_is_run_in_full() -> None:
    job = workload(layers=4, global_batch=40, pp=2, schedule="gpipe")
    _, timeline = run(blueprint(cluster(2, 1, 1), job, software(), LIBRARY), SimulationOptions())
    assert not timeline.repetitions
    assert (
        timeline.makespan
        == execute(blueprint(cluster(2, 1, 1), job, software(), LIBRARY).build().program).makespan
    )
