"""The same commands that measure a GPU cluster run here on CPUs and gloo, and resume where they stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.calibration.microbenchmarks.benchmark import Scope, cases_of
from simulator.calibration.microbenchmarks.store import read_results

pytest.importorskip("torch")

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run(*arguments: str, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    start = [sys.executable]
    if ranks:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*start, "-m", "simulator.calibration", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False)


def test_one_process_measures_every_kind_of_kernel_and_a_second_run_measures_nothing(tmp_path):
    out = tmp_path / "one.jsonl"
    options = ("--out", str(out), "--quick", "--device", "cpu", "--largest", "64 KiB")
    first = run(*options)
    assert first.returncode == 0, first.stderr
    results = read_results(out)
    expected = cases_of(Scope("cpu", 1, largest=64 << 10, quick=True))
    assert [m.case.key for m in results.measurements] == [case.key for case in expected]
    assert all(min(times) > 0 for m in results.measurements for times in m.seconds.values())
    assert "0 cases measured" in run(*options).stdout


@pytest.mark.long
def test_torchrun_measures_collectives_messages_concurrency_and_overlap(tmp_path):
    out = tmp_path / "two.jsonl"
    only = ("--only", "collective,send_recv,concurrent,overlap")
    done = run("--out", str(out), "--quick", "--device", "cpu", "--largest", "1 MiB", *only, ranks=2)
    assert done.returncode == 0, done.stderr
    series = {name for m in read_results(out).measurements for name in m.seconds}
    assert {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"} <= series
    assert {"ping_pong", "exchange", "0:all_reduce", "1:all_reduce", "compute_overlapped"} <= series


def test_faults_are_one_line_and_exit_code_2(tmp_path):
    wrong = run("--out", str(tmp_path / "x"), "--only", "gem")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("no benchmark gem")
    assert "Traceback" not in wrong.stderr
    unit = run("--out", str(tmp_path / "x"), "--largest", "64")
    assert unit.returncode == 2
    assert "64 has no unit" in unit.stderr
