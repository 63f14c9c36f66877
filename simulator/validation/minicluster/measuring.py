"""How is each kind of case measured on a real minicluster? Miniclusters are taken down whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.validation.minicluster.cases import Network, SharingCase, StepCase
from simulator.validation.minicluster.predicting import cluster_of, workload_of

if TYPE_CHECKING:
    from simulator.calibration.microbenchmarks.case import Case
    from simulator.calibration.microbenchmarks.store import Measurement
    from simulator.calibration.minicluster.state import Minicluster

PATIENCE = 900.0  # seconds for one launch

CACHING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
"""Freed memory is kept, as an accelerator's caching allocator does; else every gathered layer costs page faults."""


@contextlib.contextmanager
def built(network: Network) -> Iterator[Minicluster]:
    """The network as a minicluster of this process."""
    from simulator.calibration.minicluster import lifecycle

    name = f"validate-{os.getpid()}"
    try:
        yield lifecycle.up(name, cluster_of(network), described_by=network.cluster)
    finally:
        lifecycle.down(name)


def flows(minicluster: Minicluster, case: SharingCase) -> list[tuple[float, ...]]:
    """Arrivals of each flow's last byte in three runs."""
    from simulator.calibration.minicluster.flows import run_flows

    runs = [[arrived.end for arrived in run_flows(minicluster, case.flows)] for _ in range(3)]
    return list(zip(*runs, strict=True))


def benchmarks(minicluster: Minicluster, cases: Sequence[Case], repeats: int) -> list[Measurement]:
    """Microbenchmarks by all ranks of the minicluster, in the order of the cases."""
    from simulator.calibration.microbenchmarks.store import read_results

    with tempfile.TemporaryDirectory() as folder:
        asked, results = Path(folder) / "cases.jsonl", Path(folder) / "results.jsonl"
        lines = [json.dumps([case.benchmark, case.parameters]) for case in cases]
        asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
        _launch(minicluster, "benchmark_runner", asked, results, None, {"CLUSTERSIM_REPEATS": str(repeats)})
        return list(read_results(results).measurements)


def training_steps(
    minicluster: Minicluster, cases: Sequence[StepCase], num_steps: int, num_warmups: int
) -> list[list[dict[str, Any]]]:
    """The timed steps of each case in one launch; all cases have equally many ranks, on the first nodes."""
    from simulator.validation.minicluster.recipe import recipes

    with tempfile.TemporaryDirectory() as folder:
        asked, results = Path(folder) / "cases.jsonl", Path(folder) / "results.jsonl"
        with asked.open("w", encoding="utf-8") as lines:
            for case in cases:
                every = recipes(cluster_of(case.network, case.ranks), workload_of(case))
                lines.write(json.dumps([recipe.to_json() for recipe in every]) + "\n")
        steps = {"CLUSTERSIM_STEPS": str(num_steps), "CLUSTERSIM_WARMUPS": str(num_warmups)}
        _launch(minicluster, "runner", asked, results, range(cases[0].ranks), steps)
        return [json.loads(line)["steps"] for line in results.read_text(encoding="utf-8").splitlines()]


def _launch(
    minicluster: Minicluster,
    module: str,
    asked: Path,
    results: Path,
    hosts: range | None,
    environment: dict[str, str],
) -> None:
    from simulator.calibration.minicluster.launch import run_job

    command = [sys.executable, "-W", "ignore", "-m", f"simulator.validation.minicluster.{module}"]
    outcome = run_job(
        minicluster,
        [*command, str(asked), str(results)],
        hosts=None if hosts is None else list(hosts),
        environment={**CACHING, **environment},
        timeout=PATIENCE,
    )
    if outcome.code != 0:
        raise RuntimeError(f"a rank failed:\n{outcome.outputs[outcome.first_failed][-3000:]}")
