"""What is left of a sweep that is killed over and over? Everything that was finished, once, and the same tables."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
POINTS, KILLS = 1200, 20
SWEEP = """\
kind: sweep
cluster: hgx-h100-cluster
workload: llama3-8b
gpus: 16
grid:
  workload.global_batch: [16, 32, 48, 64, 80, 96, 112, 128, 144, 160]
  plan.micro_batch: [1, 2, 4, 8, 16]
  plan.tp: [1, 2, 4, 8]
  plan.pp: [1, 2]
  plan.recompute: [none, selective, full]
pareto: {minimize: [step_time_s, memory.peak_bytes]}
"""


def start(folder: Path, out: str) -> subprocess.Popen[bytes]:
    arguments = ["-m", "simulator.cli.main", "sweep", "sweep.yaml", "--out", out, "--resume", "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )


def test_a_killed_sweep_resumes(benchmark, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The time is that of the undisturbed sweep; kills come as far apart as a 25th of it, on average."""
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    began = time.monotonic()
    benchmark.pedantic(lambda: start(tmp_path, "undisturbed").wait(), rounds=1)
    whole = time.monotonic() - began
    source, kills, last = random.Random(5), 0, start(tmp_path, "killed")
    while kills < KILLS:
        try:
            last.wait(timeout=1.0 + source.uniform(0.5, 1.5) * whole / (KILLS + 5))
            break
        except subprocess.TimeoutExpired:
            last.kill()
            last.wait()
            kills += 1
            last = start(tmp_path, "killed")
    last.wait()
    rows = list(csv.reader((tmp_path / "killed" / "results.csv").open()))[1:]
    benchmark.extra_info.update(rows=len(rows), kills=kills)
    assert (len(rows), kills) == (POINTS, KILLS)
    for name in ("results.csv", "pareto.svg"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
