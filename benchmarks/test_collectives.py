"""One 1 GB all-reduce over 4,096 GPUs: how long to predict, alone and with stragglers on three ranks?"""

from __future__ import annotations

import pytest

import simulator
from simulator.costs.collectives import library_for
from simulator.engine.engine import execute
from simulator.program.single import collective_program

SLACK = 8.0


@pytest.mark.parametrize(
    ("slow", "target"), [({}, 0.05), ({5: 0.5, 1000: 0.25, 3333: 0.7}, 0.2)], ids=["even", "stragglers"]
)
def test_all_reduce_over_4096_gpus(benchmark, slow: dict[int, float], target: float) -> None:  # type: ignore[no-untyped-def]
    cluster = simulator.load_cluster("selene", 4096)
    library = library_for(cluster.node_groups[0].node, cluster.software)

    def predict() -> float:
        return execute(collective_program(cluster, "all_reduce", 1e9, library, slow)).makespan

    seconds = benchmark.pedantic(predict, rounds=5, warmup_rounds=1)
    benchmark.extra_info["all_reduce_s"] = seconds
    assert benchmark.stats.stats.min < SLACK * target
