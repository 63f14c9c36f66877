"""What the critical path says about faster and slower resources agrees with executing the program with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.engine.timeline import Timeline
from simulator.program.program import Lane, Phase, Program, Resource, Task
from simulator.program.track import COMPUTE_WEIGHT
from simulator.results.critical_path import critical_seconds
from simulator.results.limits import limiting
from simulator.results.sensitivity import sensitivity
from simulator.results.utilization import name_of
from tests.program.scenarios import software
from tests.program.test_folding_is_exact import scenarios
from tests.results.predictions import from_catalogue, prediction_of

SLIGHTLY = 1e-4
APART = {"dp_gradients": False, "dp_parameters": False, "tp": False, "pp": False}


def makespan(program: Program, kind: str, factor: float) -> float:
    """With every resource of a kind so much faster."""
    faster = [
        replace(one, capacity=one.capacity * factor) if name_of(one.kind) == kind else one
        for one in program.resources
    ]
    return execute(replace(program, resources=faster)).makespan


def every_task_ran_alone(program: Program, timeline: Timeline) -> bool:
    """Nothing shared a link or a GPU; where work does, the first order is only an estimate."""
    seconds = [
        sum(
            phase.latency
            + max((phase.work * a / program.resources[r].capacity for r, a in phase.draws), default=0.0)
            for phase in task.phases
        )
        for task in program.tasks
    ]
    return (timeline.end - timeline.start).tolist() == pytest.approx(seconds, rel=1e-9)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from(["gpu", "nvlink", "nic", "host_link"]))
def test_sensitivity_lies_between_what_slower_and_faster_resources_do(
    scenario: tuple[Any, Any, Any], kind: str
) -> None:
    machine, job, _ = scenario
    prediction = prediction_of((machine, job, software(overlap=APART)))
    program, timeline = prediction.built.program, prediction.run
    assume(every_task_ran_alone(program, timeline))
    found = sensitivity(program, timeline, timeline.makespan)
    names = ("tensor_core", "hbm") if kind == "gpu" else (kind,)
    claimed = sum(found.get(name, 0.0) for name in names)
    at = timeline.makespan
    slower = (at - makespan(program, kind, 1 - SLIGHTLY)) / (SLIGHTLY * at)
    faster = (makespan(program, kind, 1 + SLIGHTLY) - at) / (SLIGHTLY * at)
    assert slower - 0.01 <= claimed <= faster + 0.01


def test_the_limit_of_a_phase_is_what_it_fills_alone_and_kernels_go_before_links() -> None:
    program = Program(
        resources=[
            Resource("gpu", "gpu", 1.0),
            Resource("a", "nic_out", 10.0),
            Resource("b", "nvlink", 100.0),
        ]
    )
    beside = Phase("compute", "gemm", 1.0, ((0, 1.0), (1, 10.0)), flops=1.0)
    assert limiting(program, beside) == "tensor_core"
    assert limiting(program, beside._replace(flops=0.0)) == "hbm"
    assert limiting(program, Phase("dp", "reduce", 1.0, ((0, 0.01), (1, 1.0), (2, 1.0)))) == "nic"
    assert limiting(program, Phase("dp", "reduce", 1.0, ((1, 1.0), (2, 20.0)))) == "nvlink"
    assert limiting(program, Phase("other", "fixed", 1.0, cap=2.0)) == "cap"


def test_a_chain_of_a_kernel_and_a_transfer_is_divided_exactly() -> None:
    phases = (
        Phase("launch", "launch", 0.0, latency=1.0),
        Phase("compute", "gemm", 2.0, ((0, 1.0),), flops=1.0),
        Phase("dp", "reduce", 40.0, ((1, 1.0),), latency=1.0),
    )
    program = Program(
        resources=[Resource("gpu", "gpu", 1.0), Resource("nic", "nic_in", 10.0)],
        lanes=[Lane("compute", 0)],
        tasks=[Task(phases, (0,))],
        queues=[[0]],
    )
    timeline = execute(program)
    assert timeline.makespan == pytest.approx(8.0)
    assert critical_seconds(program, timeline, 10.0) == pytest.approx(
        {"dp": 5.0, "compute": 2.0, "other": 2.0, "launch": 1.0}
    )
    # the two seconds of waiting grow with the kernels
    wanted = {"tensor_core": -0.4, "nic": -0.4, "launch": 0.1, "latency": 0.1}
    assert sensitivity(program, timeline, 10.0) == pytest.approx(wanted)


GPU, NIC, HOST = 0, 1, 2
RESOURCES = [Resource("gpu", "gpu", 1.0), Resource("nic", "nic_in", 10.0), Resource("host", "host_in", 10.0)]


def beside(*tasks: Task) -> tuple[Program, Timeline]:
    """Each on a lane of its own, the first on the compute lane."""
    lanes = [Lane("compute", 0), *(Lane(f"{number}", 0) for number in range(1, len(tasks)))]
    queues = [[number] for number in range(len(tasks))]
    program = Program(resources=RESOURCES, lanes=lanes, tasks=list(tasks), queues=queues)
    return program, execute(program)


def test_what_a_kernel_loses_to_a_collective_beside_it_is_the_collectives() -> None:
    """For the second in which it moves its 10 bytes, it takes a quarter of the GPU."""
    program, timeline = beside(
        Task((Phase("compute", "gemm", 2.0, ((GPU, 1.0),), weight=COMPUTE_WEIGHT, flops=1.0),), (0,)),
        Task((Phase("dp", "reduce", 10.0, ((GPU, 0.025), (NIC, 1.0)), latency=0.5),), (1,)),
    )
    assert timeline.makespan == pytest.approx(2.25)
    wanted = {"tensor_core": -2.0 / 2.25, "nic": -0.25 / 2.25}
    assert sensitivity(program, timeline, timeline.makespan) == pytest.approx(wanted)


def test_transfers_that_meet_on_a_link_wait_for_that_link() -> None:
    """Half of each passes the host's link while they share it; the first goes on alone, limited by its NIC."""
    program, timeline = beside(
        Task((Phase("dp", "reduce", 10.0, ((NIC, 1.0), (HOST, 0.8))),), (0,)),
        Task((Phase("offload", "copy", 2.0, ((HOST, 1.0),)),), (1,)),
    )
    shared, alone = timeline.end[1], timeline.end[0] - timeline.end[1]
    assert shared > 0.2 and alone > 0.0
    wanted = {"nic": -alone / timeline.makespan, "host_link": -shared / timeline.makespan}
    assert sensitivity(program, timeline, timeline.makespan) == pytest.approx(wanted)


def test_what_was_counted_instead_of_simulated_limits_the_step_as_what_was_simulated() -> None:
    short, long = from_catalogue(vpp=1), from_catalogue(vpp=1, periodic=False)
    assert short.run.repetitions
    assert short.sensitivity == pytest.approx(long.sensitivity, rel=0.02, abs=1e-3)
