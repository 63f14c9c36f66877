"""Steps over unequal documents: each micro-batch costs what it holds, and nothing is lost or counted twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.description import DescriptionError
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, Built, blueprint, build
from simulator.results.breakdown import breakdown, critical_class
from simulator.results.data_use import data_use
from simulator.results.utilization import executed_flops
from simulator.simulation import SimulationOptions, run
from simulator.sweeps.objectives import objective
from simulator.sweeps.search import search
from tests.program.scenarios import FABRICS, LIBRARY, cluster, plans, software, workload

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG_TAILED = {"distribution": "lognormal", "median": 60, "sigma": 1.0}


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Documents on random plans and clusters."""
    num_gpus, num_nodes = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    machine = cluster(num_nodes, num_gpus, 1, dict(draw(st.sampled_from(FABRICS))))
    plan = draw(plans(machine.num_gpus, 4))
    if (
        plan["vpp"] > 1 or plan.get("family") == "moe"
    ):  # whose rows of experts are not whole numbers of tokens
        plan |= {"vpp": 1, "family": "gpt", "ep": 1, "experts": {}, "overlap": {}}
    flash = plan["attention"] == "flash"
    data = {
        "lengths": LONG_TAILED,
        "packing": draw(st.sampled_from(["none", "concatenate", "first_fit", "best_fit"])),
        "padding": draw(st.sampled_from(["none", "longest", "full"] if flash else ["longest", "full"])),
        "mask": draw(st.sampled_from(["document", "row"])),
        "seed": draw(st.integers(0, 3)),
    }
    plan["micro_batch"] = draw(st.sampled_from([1, 2]))
    job = workload(global_batch=draw(st.integers(1, 20)), data=data, **plan)
    return machine, job, software()


@QUICK
@given(scenarios())
def test_flops_are_those_of_the_documents_and_time_adds_up(scenario: tuple[Any, Any, Any]) -> None:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    timeline = execute(built.program)
    recomputes = job.plan.recompute != "none"
    assert executed_flops(built, timeline) == pytest.approx(job.flops, rel=1e-9) or recomputes
    assert executed_flops(built, timeline) >= job.flops * (1 - 1e-9)
    shares = breakdown(built.program, timeline, critical_class(built.program, timeline))
    assert sum(shares.values()) == pytest.approx(timeline.makespan, rel=1e-9)
    use = data_use(built.setting)
    assert use["tokens"] == job.tokens and 0.0 <= use["padding"] < 1.0


@QUICK
@given(scenarios())
def test_folded_equals_unfolded(scenario: tuple[Any, Any, Any]) -> None:
    folded, unfolded = (
        execute(build(*scenario, LIBRARY, BuildOptions(fold=fold)).program).makespan for fold in (True, False)
    )
    assert folded == pytest.approx(unfolded, rel=1e-9)


@QUICK
@given(st.data())
def test_documents_of_one_length_are_plain_samples(data: st.DataObject) -> None:
    machine = cluster(2, 4, 1)
    plan = data.draw(plans(8, 4))
    replicas = 8 // plan["tp"] // plan["pp"] // plan.get("cp", 1)
    size = {"global_batch": replicas * plan["pp"] * 2, **plan}
    fixed = {"lengths": {"distribution": "fixed", "length": 256}, "packing": "none"}
    times, peaks = [], []
    for job in (workload(**size), workload(**size, data=fixed)):
        built = build(machine, job, software(), LIBRARY)
        timeline = execute(built.program)
        times.append(timeline.makespan)
        peaks.append([one.bytes for one in timeline.memory])
    assert times[1] == pytest.approx(times[0], rel=1e-12)
    assert peaks[1] == pytest.approx(peaks[0], rel=1e-12)


def makespan(data: dict[str, Any], count: int, **plan: Any) -> tuple[float, Built]:
    built = build(cluster(1, 1, 1), workload(global_batch=count, data=data, **plan), software(), LIBRARY)
    return execute(built.program).makespan, built


def test_unequal_micro_batches_take_the_sum_of_their_own_times(tmp_path: Any) -> None:
    """Of single micro-batches, each with its update; three updates are counted too often."""
    lengths = (256, 16, 100, 16)

    def of(tokens: tuple[int, ...]) -> float:
        path = tmp_path / "-".join(map(str, tokens))
        path.write_text("\n".join(map(str, tokens)))
        given = {"lengths": {"distribution": "file", "file": str(path)}, "packing": "none"}
        return makespan(given, len(tokens))[0]

    for first, second in ((256, 16), (100, 100), (16, 100)):
        twice = of((first, second)), of((second, second))
        assert twice[0] - twice[1] == pytest.approx(of((first, first)) - of((first, second)), rel=1e-9)
    assert of(lengths) == pytest.approx(of((256, 100)) + of((16, 16)) - _update(of), rel=1e-9)


def _update(of: Any) -> float:
    """Two micro-batches twice are four and an update."""
    return float(2 * of((16, 16)) - of((16, 16, 16, 16)))


@given(seed=st.integers(0, 20))
@settings(max_examples=10, deadline=None)
def test_packing_never_costs_more_than_padding(seed: int) -> None:
    padded = {"lengths": LONG_TAILED, "packing": "none", "padding": "full", "seed": seed}
    packed = {"lengths": LONG_TAILED, "packing": "best_fit", "seed": seed}
    assert makespan(packed, 16)[0] <= makespan(padded, 16)[0]


def test_padding_is_shown_as_its_share_of_the_tokens() -> None:
    """64 tokens of 256 are documents; of an operator that is linear in tokens three quarters are wasted."""
    data = {"lengths": {"distribution": "fixed", "length": 64}, "packing": "none", "padding": "full"}
    _, built = makespan(data, 2)
    seconds: dict[str, float] = {}
    for task in built.program.tasks:
        for phase in task.phases:
            if phase.label == "fc1.forward":
                seconds[phase.kind] = seconds.get(phase.kind, 0.0) + phase.work
    assert seconds["padding"] / sum(seconds.values()) == pytest.approx(0.75, rel=1e-9)
    assert data_use(built.setting)["padding"] == 0.75


def test_a_replica_without_rows_runs_as_little_as_it_can() -> None:
    data = {"lengths": {"distribution": "fixed", "length": 256}, "packing": "none"}
    built = build(cluster(1, 4, 1), workload(global_batch=5, data=data, zero=3), software(), LIBRARY)
    held = [sum(pack.tokens > 0 for pack in micro_batch) for micro_batch in built.setting.packs]
    assert held == [4, 1]
    idle = built.setting.shard_of(built.setting.packs[1][1])
    assert (idle.tokens, idle.filled) == (1, 0.0)


def test_equal_micro_batches_of_documents_are_still_left_out() -> None:
    data = {"lengths": {"distribution": "fixed", "length": 256}, "packing": "none"}
    job = workload(layers=4, global_batch=64, pp=2, data=data)
    plan = blueprint(cluster(2, 1, 1), job, software(), LIBRARY)
    short, whole = run(plan, SimulationOptions())[1], run(plan, SimulationOptions(periodic=False))[1]
    assert short.repetitions
    assert short.makespan == pytest.approx(whole.makespan, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"attention": "unfused", "data": {"lengths": LONG_TAILED, "padding": "none"}}, "data.padding"),
        ({"replica_batches": "balanced", "data": {"lengths": LONG_TAILED}}, "plan.replica_batches"),
        ({"tp_z": 2, "micro_batch": 2, "data": {"lengths": LONG_TAILED}}, "tp_z"),
    ],
)
def test_what_documents_do_not_go_with_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises((DescriptionError, ValueError), match=key):
        workload(**changes)


def test_search_refuses_unequal_micro_batches() -> None:
    machine = cluster(1, 1, 1)
    with pytest.raises(DescriptionError, match="micro-batches of unequal documents have no lower bound"):
        search(machine, workload(data={"lengths": LONG_TAILED}), objective("step_time", machine))
