"""Folded equals unfolded, and collapsed equals task by task, to 1e-9 on random small scenarios."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.description.faults import DescriptionError
from simulator.engine.engine import execute
from simulator.program import builder
from simulator.program.builder import BuildOptions, Built, build
from tests.program.scenarios import FABRICS, LIBRARY, cluster, mixed_cluster, plans, software, workload

SOFTWARE = (
    software(),
    software(
        launch=4e-6,
        launch_backward=3e-6,
        synchronous_p2p=True,
        p2p_overhead=1e-5,
        overlap={"dp_gradients": False, "dp_parameters": True, "tp": False, "pp": False},
    ),
    software(launch=3e-6, launch_backward=2e-6, call=2e-5),
)


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    num_gpus = draw(st.sampled_from([1, 2, 4]))
    num_nodes = draw(st.sampled_from([1, 2, 3, 4]))
    num_nics = draw(st.sampled_from([n for n in (1, 2, 4) if n <= num_gpus]))
    fabric = draw(st.sampled_from(FABRICS))
    uneven = num_nodes > 1 and draw(st.booleans())
    machine = (
        mixed_cluster(1, num_nodes - 1, num_gpus, dict(fabric))
        if uneven
        else cluster(num_nodes, num_gpus, num_nics, dict(fabric))
    )
    layers = draw(st.sampled_from([2, 4, 6]))
    plan = draw(plans(machine.num_gpus, layers))
    replicas = machine.num_gpus // plan["tp"] // plan["pp"] // plan.get("cp", 1)
    micro_batches = plan["pp"] * draw(st.sampled_from([1, 2]))
    job = workload(layers=layers, global_batch=replicas * micro_batches, **plan)
    return machine, job, draw(st.sampled_from(SOFTWARE))


def makespan(scenario: tuple[Any, Any, Any], **options: bool) -> tuple[float, Built]:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY, BuildOptions(**options))
    return execute(built.program).makespan, built


@pytest.mark.long
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_folded_equals_unfolded(scenario: tuple[Any, Any, Any]) -> None:
    folded, few = makespan(scenario)
    unfolded, many = makespan(scenario, fold=False)
    assert folded == pytest.approx(unfolded, rel=1e-9)
    assert len(many.program.members) == scenario[0].num_gpus
    assert sum(few.program.members) == scenario[0].num_gpus


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_collapsed_equals_task_by_task(scenario: tuple[Any, Any, Any]) -> None:
    assert makespan(scenario)[0] == pytest.approx(makespan(scenario, collapse=False)[0], rel=1e-9)


@pytest.mark.parametrize("width", [2, 8, 64])
def test_cost_does_not_depend_on_data_parallel_width(width: int) -> None:
    job = workload(global_batch=2 * width, tp=4, pp=1)
    built = build(cluster(width, 4, 4), job, software(), LIBRARY)
    narrow = build(cluster(2, 4, 4), workload(global_batch=4, tp=4, pp=1), software(), LIBRARY)
    assert len(built.program.tasks) == len(narrow.program.tasks)
    assert built.program.members == [4 * width]


def test_a_slow_node_splits_only_the_classes_it_touches() -> None:
    fabric = {"kind": "single_switch", "hop_latency": 5e-7}
    job = workload(global_batch=32, tp=2)
    built = build(mixed_cluster(3, 1, 2, fabric), job, software(), LIBRARY)
    assert sorted(built.program.members) == [2, 6]


def test_a_step_that_no_memory_holds_is_refused_with_the_layout_that_would_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three nodes of four: stages of six ranks lie across nodes in two ways."""
    job = workload(global_batch=12, tp=2, pp=2)
    across = cluster(3, 4, 4)
    tasks = len(build(across, job, software(), LIBRARY).program.tasks)
    monkeypatch.setattr(builder, "MOST_TASKS", tasks // 2)
    with pytest.raises(DescriptionError, match=r"plan\.order.*kinds.*\[tp, cp, pp, dp\]"):
        build(across, job, software(), LIBRARY)
