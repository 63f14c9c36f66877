"""`clustersim sweep` from the outside: files, exit codes, and what kills leave behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """\
kind: sweep
cluster: ./cluster.yaml
workload: ./workload.yaml
gpus: 16
grid:
  workload.global_batch: [16, 32, 48, 64, 80, 96]
  plan.tp: [1, 2, 4]
  plan.recompute: [none, selective, full]
  model.layers: [2, 4]
pareto: {minimize: [step_time_s, memory.peak_bytes]}
"""


@pytest.fixture
def sweep(design: Path) -> Path:
    (design / "sweep.yaml").write_text(SWEEP)
    return design


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "simulator.cli.main", "sweep", "sweep.yaml", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command(*arguments), env=environment, capture_output=True, text=True, check=False)


def test_a_sweep_writes_its_files_and_a_second_one_needs_resume(sweep: Path) -> None:
    first = run("--out", "out", "--jobs", "1")
    assert first.returncode == 0, first.stderr
    assert "108 points: 108 done" in first.stdout and first.stderr == ""
    assert {path.name for path in (sweep / "out").iterdir()} == {
        "results.sqlite",
        "results.csv",
        "pareto.svg",
    }
    again = run("--out", "out")
    assert again.returncode == 2 and "--resume" in again.stderr
    resumed = run("--out", "out", "--resume", "--json")
    told = json.loads(resumed.stdout)
    assert told["points"] == told["before"] == 108 and told["added"] == {}
    assert told["pareto"] and all(row["memory.fits"] for row in told["pareto"])


def test_wrong_sweeps_exit_with_2_and_a_place(sweep: Path) -> None:
    (sweep / "sweep.yaml").write_text(SWEEP.replace("plan.tp", "plam.tp"))
    wrong = run("--out", "out")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("sweep.yaml:6:") and "did you mean plan" in wrong.stderr


def kill_after(seconds: float, arguments: list[str]) -> bool:
    """Whether the process was killed, rather than done before."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True


@pytest.mark.long
def test_twenty_kills_at_random_instants_change_nothing(sweep: Path) -> None:
    began = time.monotonic()
    assert run("--out", "undisturbed", "--jobs", "2").returncode == 0
    whole = time.monotonic() - began
    source = random.Random(5)
    kills = 0
    for _ in range(20):
        kills += kill_after(
            source.uniform(0.2, 1.0) * whole, command("--out", "out", "--resume", "--jobs", "2")
        )
    assert kills > 0
    final = run("--out", "out", "--resume", "--json", "--jobs", "2")
    assert json.loads(final.stdout)["points"] == 108
    for name in ("results.csv", "pareto.svg"):
        assert (sweep / "out" / name).read_bytes() == (sweep / "undisturbed" / name).read_bytes()


@pytest.mark.long
def test_ctrl_c_keeps_what_is_finished(sweep: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = command("--out", "out", "--jobs", "2")
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (sweep / "out" / "results.sqlite").exists())
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    after_the_last_point = (130, -signal.SIGINT)  # while it writes the tables, or Python is on its way out
    assert process.returncode in (0, 1, *after_the_last_point)
    assert "Traceback" not in told
    if process.returncode == 1:
        assert "--resume goes on" in told, told


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


@pytest.mark.long
def test_processes_of_a_killed_sweep_end(sweep: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command("--out", "out", "--jobs", "2"), env=environment, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: len(children(process.pid)) >= 2 or process.poll() is not None)
    started = children(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


@pytest.mark.long
def test_a_dask_worker_killed_half_way_costs_nothing(sweep: Path) -> None:
    distributed = pytest.importorskip("distributed")
    from simulator.description import load
    from simulator.sweeps.dask_pool import dask_pool
    from simulator.sweeps.export import rows
    from simulator.sweeps.points import points
    from simulator.sweeps.runner import Progress
    from simulator.sweeps.runner import run as run_sweep
    from simulator.sweeps.store import Store

    described = load("sweep", "sweep.yaml")
    every = points(described)
    killed: list[int] = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:

        def kill_one(done: int, total: int) -> None:
            if done >= total // 3 and not killed:
                worker = next(iter(cluster.workers.values()))
                killed.append(worker.pid)
                os.kill(worker.pid, signal.SIGKILL)

        with Store(sweep / "dask.sqlite") as store:
            with dask_pool(cluster.scheduler_address) as pool:
                summary = run_sweep(described, every, store, pool, Progress(kill_one))
            spread = rows(described, every, store)
    with Store(sweep / "local.sqlite") as store:
        run_sweep(described, every, store)
        local = rows(described, every, store)
    assert killed
    assert summary.added == {"done": 108}
    assert spread == local
