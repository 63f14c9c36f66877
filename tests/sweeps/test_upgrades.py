"""Changes of hardware and plan: gains are simulated, and the best single change of the plan is the best there is."""

from __future__ import annotations

import pytest

from simulator.results.explanation import explain
from simulator.simulation import simulate
from simulator.sweeps.changes import Design
from simulator.sweeps.upgrades import _neighbours, _runs, hardware_changes, plan_changes
from tests.sweeps.test_search import job, machine


def test_the_best_change_of_the_plan_is_the_best_of_all() -> None:
    design = Design(machine(), job(tp=2, pp=2))
    step = simulate(design.cluster, design.workload).step_time_s
    found = plan_changes(design, step, most=2)
    every = []
    for _, plan in _neighbours(design.workload.plan):
        if _runs(design, plan):
            answer = simulate(design.cluster, design.workload.model_copy(update={"plan": plan}))
            every += [answer.step_time_s] if answer.memory.fits else []
    assert [change.step_time for change in found] == pytest.approx(sorted(every)[:2])
    assert found[0].gain == pytest.approx(step / found[0].step_time - 1.0)


def test_gains_of_hardware_are_what_a_simulation_of_it_gives() -> None:
    design = Design(machine(), job(tp=4))
    step = simulate(design.cluster, design.workload).step_time_s
    changes = {change.name: change for change in hardware_changes(design, step)}
    assert set(changes) >= {
        "tensor cores x 2",
        "HBM bandwidth x 2",
        "NICs x 2",
        "fabric without oversubscription",
    }
    nic = changes["NICs x 2"]
    changed = design.with_value("cluster.node.nic.bandwidth", 2 * design.value("cluster.node.nic.bandwidth"))
    assert nic.step_time == simulate(changed.cluster, changed.workload).step_time_s
    assert nic.settings == {"cluster.node.nic.bandwidth": "50 GB/s"} or nic.settings


def test_the_object_has_everything() -> None:
    tree = explain(machine(), job(tp=4)).to_dict()
    assert set(tree) == {"step_time_s", "mfu", "waterfall", "binding", "sensitivity", "hardware", "plan"}
    assert tree["mfu"] == pytest.approx(1.0 - sum(loss["share"] for loss in tree["waterfall"]))
    assert tree["binding"] in tree["sensitivity"]
