"""`clustersim minicluster` and `calibrate run --minicluster` as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.calibration.microbenchmarks.store import read_results
from simulator.calibration.minicluster.commands import namespaces
from tests.calibration.minicluster.conftest import needs_namespaces

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clustersim(tmp_path):
    """clustersim(*arguments) → (exit code, output, errors), with a run directory of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CLUSTERSIM_RUN_DIR": str(tmp_path / "run")}

    def run(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "simulator.cli.main", *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
        )
        return done.returncode, done.stdout, done.stderr

    yield run
    for name in (f"cli{os.getpid()}",):
        if namespaces_possible():
            run("minicluster", "down", name)


def namespaces_possible() -> bool:
    from simulator.calibration.minicluster.privileges import reason_against

    return reason_against() is None


@needs_namespaces
def test_up_status_exec_down(clustersim):
    name = f"cli{os.getpid()}"
    code, out, errors = clustersim("minicluster", "up", "minicluster", "--gpus", "2", "--name", name)
    assert (code, errors) == (0, "")
    assert f"{name}: 2 nodes up" in out
    assert "n1  10.200.0.2  100 Mb/s" in clustersim("minicluster", "status", name)[1]
    assert clustersim("minicluster", "up", "minicluster", "--name", name)[0] == 2
    code, out, _ = clustersim(
        "minicluster", "exec", name, "--nodes", "1", "--", "sh", "-c", "echo $WORLD_SIZE; exit 5"
    )
    assert (code, out) == (5, "[0] 1\n")
    assert clustersim("minicluster", "down", name)[1] == f"{name}: down\n"
    assert clustersim("minicluster", "down", name)[1] == "nothing was up\n"
    assert namespaces(f"clustersim.{name}.") == []


@needs_namespaces
@pytest.mark.long
def test_collectives_are_measured_on_a_minicluster_at_the_rate_of_its_links(clustersim, tmp_path):
    pytest.importorskip("torch")
    name, out = f"cli{os.getpid()}", tmp_path / "gloo.jsonl"
    clustersim("minicluster", "up", "minicluster", "--gpus", "2", "--name", name)
    sizes = ("--smallest", "256 KiB", "--largest", "512 KiB", "--quick", "--only", "send_recv")
    code, printed, errors = clustersim("calibrate", "run", "--minicluster", name, "--out", str(out), *sizes)
    assert code == 0, errors
    assert "4 cases measured" in printed
    for measurement in read_results(out).measurements:
        for times in measurement.seconds.values():
            least = measurement.case["size"] / 12.5e6  # what else runs on the machine can only add to it
            assert 0.9 * least < min(times) < 2.0 * least


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("status", "nobody"), "minicluster nobody is not up"),
        (("exec", "nobody", "--", "true"), "minicluster nobody is not up"),
        (("down",), "give a name, or --all"),
        (("up", "minicluster", "--set", "node.num_gpus=2"), "interconnect"),
        (("up", "no-such-cluster"), "no-such-cluster"),
    ],
)
def test_faults_are_one_line_and_exit_code_2(clustersim, arguments, words):
    code, _, errors = clustersim("minicluster", *arguments)
    assert code == 2
    assert words in errors
    assert "Traceback" not in errors
