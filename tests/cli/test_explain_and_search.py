"""`clustersim explain`, `search` and `solve` from the command line: what they print, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli.main import app, exit_code
from simulator.cli.search import space_of

DESIGN = ["./cluster.yaml", "./workload.yaml", "--gpus", "16"]
SMALL = ["--try", "plan.tp=1,2", "--try", "plan.pp=1", "--try", "plan.cp=1", "--try", "plan.micro_batch=1"]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return exit_code(result.exception), str(result.exception)
    return result.exit_code, result.stdout


def test_explain_tells_waterfall_limit_and_changes(design: Path) -> None:
    code, told = run("explain", *DESIGN, "--plot", "w.svg")
    assert code == 0
    assert all(words in told for words in ("peak", "= MFU", "limited by", "next best change of"))
    assert (design / "w.svg").read_text().startswith("<?xml")
    code, told = run("explain", *DESIGN, "--json")
    tree = json.loads(told)
    assert code == 0 and tree["mfu"] == pytest.approx(1.0 - sum(loss["share"] for loss in tree["waterfall"]))


def test_search_prints_settings_that_run_as_said(design: Path) -> None:
    code, told = run("search", *DESIGN, *SMALL, "--jobs", "1", "--top", "2", "--json")
    tree = json.loads(told)
    assert code == 0 and len(tree["best"]) == 2
    best = tree["best"][0]
    plan = best["meta"]["plan"]
    keys = ("tp", "pp", "vpp", "zero", "micro_batch", "sequence_parallel", "recompute")
    settings = [
        part for key in keys for part in ("--set", f"plan.{key}={json.dumps(plan[key]).strip(chr(34))}")
    ]
    code, told = run("run", *DESIGN, *settings, "--json")
    assert json.loads(told)["step_time_s"] == best["step_time_s"]
    code, told = run("search", *DESIGN, *SMALL, "--jobs", "1")
    assert code == 0 and "--set plan.tp=" in told and "were simulated" in told


def test_search_without_a_plan_that_fits_exits_with_1(design: Path) -> None:
    code, told = run(
        "search", *DESIGN, *SMALL, "--jobs", "1", "--set", "cluster.node.gpu.memory.capacity=1 MB"
    )
    assert code == 1 and "no plan fits" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", *DESIGN, "--try", "plan.recomput=full"], "did you mean"),
        (["search", *DESIGN, "--try", "plan.tp"], "needs the form"),
        (["search", *DESIGN, "--try", "plan.tp=0"], "plan.tp: must be greater than 0 (is 0)"),
        (["search", *DESIGN, "--try", "plan.micro_batch=x"], "plan.micro_batch: needs a whole number, not x"),
        (["search", *DESIGN, "--try", "plan.schedule=1f2b"], "unknown schedule 1f2b; did you mean 1f1b?"),
        (["search", *DESIGN, "--objective", "speed"], "unknown objective"),
        (["search", *DESIGN, "--constraint", "mfu"], "needs the form"),
        (["solve", *DESIGN, "--vary", "cluster.node.nic.bandwidht", "--until", "mfu>=0.1"], "did you mean"),
        (["solve", *DESIGN, "--vary", "gpus", "--until", "mfu>=0.1", "--between", "3"], "LOW,HIGH"),
    ],
)
def test_wrong_options_are_told_and_exit_with_2(design: Path, arguments: list[str], message: str) -> None:
    code, told = run(*arguments)
    assert code == 2 and message in told


def test_solve_tells_where_a_condition_begins_to_hold(design: Path) -> None:
    key = "cluster.node.nic.bandwidth"
    code, told = run("solve", *DESIGN, "--vary", key, "--until", "step_time_s<=1", "--json")
    tree = json.loads(told)
    assert code == 0 and tree["key"] == key and tree["holds"]
    code, told = run("solve", *DESIGN, "--vary", key, "--until", "step_time_s<=0")
    assert code == 1 and "holds for no" in told


def test_values_to_try_are_numbers_where_they_look_like_one() -> None:
    space = space_of(["plan.zero=0, 3", "plan.recompute=none,full"])
    assert {key: list(given) for key, given in space.values.items()} == {
        "zero": [0, 3],
        "recompute": ["none", "full"],
    }
