"""What does a fresh process cost: `--help`, `import simulator`, and peak memory of single predictions?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SLACK = 4.0


def fresh(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "target"),
    [(("-m", "simulator.cli.main", "--help"), 0.4), (("-c", "import simulator"), 0.3)],
    ids=["help", "import"],
)
def test_start(benchmark, arguments: tuple[str, ...], target: float) -> None:  # type: ignore[no-untyped-def]
    benchmark.pedantic(fresh, arguments, rounds=5, warmup_rounds=1)
    assert benchmark.stats.stats.min < SLACK * target


PEAK = """
import simulator
{body}
lines = open("/proc/self/status").read().splitlines()
print(next(line for line in lines if line.startswith("VmHWM")).split()[1])
"""
PREDICTION = (
    "simulator.simulate(simulator.load_cluster({cluster!r}, {gpus}), simulator.load_workload({workload!r}))"
)
BODIES = {
    "gpt3-175b on 1,024 A100": PREDICTION.format(cluster="selene", gpus=1024, workload="gpt3-175b"),
    "llama3-405b on 16,384 H100": PREDICTION.format(cluster="h100-16k", gpus=16384, workload="llama3-405b"),
    "1 GB all-reduce over 4,096 GPUs": """
from simulator.costs.collectives import library_for
from simulator.engine.engine import execute
from simulator.program.single import collective_program
cluster = simulator.load_cluster("selene", 4096)
execute(collective_program(cluster, "all_reduce", 1e9, library_for(cluster.node_groups[0].node, cluster.software)))
""",
}


@pytest.mark.parametrize(("name", "target"), list(zip(BODIES, (300, 300, 200), strict=True)))
def test_peak_memory(benchmark, name: str, target: float) -> None:  # type: ignore[no-untyped-def]
    """MiB of the whole process, interpreter and libraries included."""
    out = benchmark.pedantic(fresh, ("-c", PEAK.format(body=BODIES[name])), rounds=1)
    peak = float(out.split()[-1]) / 1024
    benchmark.extra_info["peak_mib"] = peak
    assert peak <= target
