"""`clustersim run`: every key of the design, the same bytes twice, exit codes, files, faults in one go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli.main import BAD_INPUT, DONE, FAILED
from tests.cli.conftest import Clustersim

ROOT = Path(__file__).parents[2]
SMALL = ("run", "selene", "megatron-22b", "--gpus", "16", "--set", "workload.global_batch=8")
TOO_MUCH = (*SMALL, "--set", "plan.micro_batch=2", "--set", "cluster.node.gpu.memory.capacity=24 GiB")


def keys_of_the_design() -> tuple[set[str], dict[str, set[str]]]:
    """Keys that section 7 lists: of the object, and of the objects in it."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = text[text.index("## 7.") : text.index("## 8.")]
    block = section.split("```")[1]
    block = re.sub(r"\([^()]*\)", "", block)
    inner = {
        name: {word.split(":")[0].strip() for word in re.sub(r"\{.*?\}", "", body).split(",")}
        for name, body in re.findall(r"^(\w+): \{((?:[^{}]|\{[^{}]*\})*)\}", block, re.M)
    }
    top = set(
        re.findall(r"(?:^|[,;])\s*(\w+)", re.sub(r"\{(?:[^{}]|\{[^{}]*\})*\}|\[.*?\]", "", block), re.M)
    )
    return {word for word in top if not word.startswith(("exclusive", "sums", "null"))}, inner


def test_json_has_every_key_of_the_design(clustersim: Clustersim) -> None:
    code, out, _ = clustersim(*SMALL, "--json")
    tree = json.loads(out)
    top, inner = keys_of_the_design()
    assert code == DONE
    assert {"step_time_s", "mfu", "hfu", "gpus", "breakdown_s", "meta", "sensitivity", "cost_usd"} <= top
    assert top - set(tree) == set()
    assert {"compute", "bubble"} <= inner["breakdown_s"] == set(tree["breakdown_s"])
    assert {name for name in inner["utilization"] if re.fullmatch(r"\w+", name)} <= set(tree["utilization"])
    assert {"peak_bytes", "by_kind", "rank_class"} <= inner["memory"] <= set(tree["memory"])
    assert {"cluster", "workload", "engine"} <= inner["meta"] <= set(tree["meta"])
    assert {"tasks", "events", "wall_s", "folded_from"} == set(tree["meta"]["engine"])
    assert all(set(part) == {"kind", "seconds"} for part in tree["critical_path"])


def test_the_same_input_gives_the_same_bytes_twice(tmp_path: Path) -> None:
    printed, traces = [], []
    for seed in ("1", "2"):
        trace = tmp_path / f"{seed}.json"
        command = [sys.executable, "-m", "simulator.cli.main", *SMALL, "--json", "--trace", str(trace)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        )
        printed.append(re.sub(r'"wall_s": [\d.e-]+', '"wall_s": 0', done.stdout))
        traces.append(trace.read_bytes())
    assert printed[0] == printed[1]
    assert traces[0] == traces[1]


def test_a_plan_that_does_not_fit_gives_a_full_result_with_remedies_and_exit_code_1(
    clustersim: Clustersim,
) -> None:
    code, out, _ = clustersim(*TOO_MUCH, "--json")
    tree = json.loads(out)
    assert code == FAILED
    assert tree["memory"]["fits"] is False
    assert tree["memory"]["shortfall_bytes"] == pytest.approx(tree["memory"]["peak_bytes"] - 24 * 2**30)
    assert tree["step_time_s"] > 0 and tree["mfu"] > 0
    assert tree["memory"]["remedies"] and all(one["set"] for one in tree["memory"]["remedies"])

    code, out, _ = clustersim(*TOO_MUCH)
    assert code == FAILED and "does not fit" in out and "--set plan." in out and "step time" in out


def test_the_table_is_plain_in_a_pipe_and_says_what_a_person_asks_first(clustersim: Clustersim) -> None:
    code, out, _ = clustersim(*SMALL)
    assert code == DONE
    assert "\x1b" not in out
    for wanted in ("step time", "tokens/s", "MFU", "Where the time goes", "Memory", "fits", "a100-sxm-80"):
        assert wanted in out
    assert max(len(line) for line in out.splitlines()) <= 110


def test_a_terminal_that_knows_only_ascii_gets_a_table_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulator.cli.main", *SMALL]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == DONE and b"step time" in done.stdout


def test_without_a_number_of_gpus_the_job_takes_what_its_batch_divides_over(clustersim: Clustersim) -> None:
    code, out, _ = clustersim("run", "selene", "gpt3-175b", "--json")
    assert code == DONE
    assert json.loads(out)["gpus"] == 4096
    code, out, _ = clustersim("run", "selene", "gpt3-175b")
    assert code == DONE and "4,096 GPUs of 4,480" in out.splitlines()[0]


def test_trace_and_report_are_written_beside_the_table(clustersim: Clustersim, tmp_path: Path) -> None:
    trace, report = tmp_path / "step.json", tmp_path / "step.html"
    code, out, _ = clustersim(*SMALL, "--trace", str(trace), "--report", str(report))
    assert code == DONE and "step time" in out
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


FAULTS = {
    "degrees": (["--set", "plan.tp=7"], ["plan.tp: 7 does not divide"]),
    "both files at once": (
        ["--set", "plan.tpp=8", "--set", "cluster.node.nic.bandwidth=400"],
        ["plan.tpp: unknown key; did you mean tp?", "400 has no unit"],
    ),
    "calibrations": (
        [
            "--set",
            "plan.software=foo",
            "--set",
            "cluster.software=bar",
            "--set",
            "cluster.node.gpu.calibration=baz",
        ],
        ["plan.software: unknown software foo", "software: unknown collectives bar", "unknown kernels baz"],
    ),
    "attention": (
        ["--set", "plan.attention=flash", "--set", "plan.software=torch-gloo"],
        [
            "plan.software: torch-gloo runs attention as 'flash', which is not known of a100-sxm-80 (known: cudnn, "
        ],
    ),
    "precision": (["--set", "workload.precision=fp8"], ["precision: a100-sxm-80 has no fp8 peak"]),
    "no library": (["--set", "cluster.node.gpu.architecture=tpu"], ["software: "]),
    "no folder": (["--trace", "/no/such/folder/x.json"], ["--trace: there is no folder /no/such/folder"]),
    "a folder": (["--report", "."], ["--report: is a folder"]),
    "no value": (["--set", "plan.tp"], ["needs the form KEY=VALUE"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_bad_input_is_named_with_exit_code_2_and_nothing_is_printed(
    clustersim: Clustersim, name: str
) -> None:
    arguments, wanted = FAULTS[name]
    code, out, err = clustersim(*SMALL, *arguments)
    assert code == BAD_INPUT
    assert out == ""
    assert "Traceback" not in err
    for text in wanted:
        assert text in err, err
    assert len(err.strip().splitlines()) >= len(wanted)


def test_faults_of_cluster_and_workload_are_reported_together(clustersim: Clustersim) -> None:
    code, _, err = clustersim("run", "seleme", "gpt3-175c")
    assert code == BAD_INPUT
    assert "did you mean selene?" in err and "did you mean gpt3-175b?" in err
