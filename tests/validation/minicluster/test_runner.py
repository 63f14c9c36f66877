"""Real steps on a real minicluster come back with durations and each rank's activity (root and iproute2 needed)."""

from __future__ import annotations

import json
import sys

import pytest

from simulator import load_cluster, load_workload
from simulator.calibration.minicluster.launch import run_job
from simulator.validation.minicluster.recipe import recipes
from simulator.validation.minicluster.runner import merge
from tests.calibration.minicluster.conftest import bring_up, needs_namespaces  # noqa: F401

CASES = {
    "ddp": {},
    "fsdp2": {"plan.zero": 3},
    "zero1": {"plan.zero": 1},
    "tp": {"plan.tp": 2},
    "gpipe": {"plan.pp": 2, "plan.schedule": "gpipe"},
    "1f1b": {"plan.pp": 2},
    "interleaved": {"plan.pp": 2, "plan.vpp": 2},
    "cp": {"plan.cp": 2},
}


def test_a_step_lasts_from_the_last_begin_to_the_last_end():
    first = [{"begin": 1.0, "end": 2.0, "spans": [(1.5, 1.75, "x")]}]
    second = [{"begin": 1.25, "end": 2.5, "spans": []}]
    (step,) = merge([first, second])["steps"]
    assert step["seconds"] == 1.25
    assert step["spans"] == [[(0.25, 0.5, "x")], []]


@needs_namespaces
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_strategy_runs_a_step_that_computes_what_it_was_asked_to(bring_up, tmp_path, name):  # noqa: F811
    pytest.importorskip("torch")
    cluster = load_cluster("minicluster", 2, {"node.nic.bandwidth": "400 Mb/s"})
    workload = load_workload("gpt-mini", {"global_batch": 8, **CASES[name]})
    asked = recipes(cluster, workload)
    described, result = tmp_path / "recipes.jsonl", tmp_path / "result.json"
    described.write_text(json.dumps([recipe.to_json() for recipe in asked]) + "\n")
    command = [sys.executable, "-m", "simulator.validation.minicluster.runner", str(described), str(result)]
    environment = {"CLUSTERSIM_STEPS": "2", "CLUSTERSIM_WARMUPS": "1"}
    outcome = run_job(bring_up(cluster), command, environment=environment, timeout=120)
    assert outcome.code == 0, "\n".join(outcome.outputs)
    for step in json.loads(result.read_text())["steps"]:
        for recipe, spans in zip(asked, step["spans"], strict=True):
            actions = [
                a for c in recipe.chunks for layer in c.layers for a in (*layer.forward, *layer.backward)
            ]
            asked_for = recipe.num_micro_batches * sum(a.seconds for a in actions) + recipe.optimizer_seconds
            assert sum(end - begin for begin, end, _ in spans) == pytest.approx(asked_for, rel=1e-6)
            assert step["seconds"] >= asked_for * 0.999
