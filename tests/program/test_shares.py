"""Uneven replicas run what they were given, and the balanced division is the best there is."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.description import DescriptionError
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, Built, build
from simulator.program.shares import balanced, proportional
from simulator.results.utilization import executed_flops
from simulator.simulation import simulate
from tests.program.scenarios import FABRICS, LIBRARY, cluster, mixed_cluster, software, workload

speeds = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=4)


@settings(deadline=None)
@given(speeds, st.integers(0, 8))
def test_no_division_finishes_earlier_than_the_balanced_one(seconds: list[float], more: int) -> None:
    total = len(seconds) + more
    found = balanced(total, seconds)
    assert sum(found) == total and min(found) >= 1

    def finish(counts: tuple[int, ...]) -> float:
        return max(count * time for count, time in zip(counts, seconds, strict=True))

    others = (counts for counts in product(range(1, more + 2), repeat=len(seconds)) if sum(counts) == total)
    assert finish(found) <= min(map(finish, others)) * (1 + 1e-12)


@settings(deadline=None)
@given(speeds, st.integers(0, 100))
def test_proportional_shares_add_up_and_follow_the_speeds(values: list[float], more: int) -> None:
    total = len(values) + more
    found = proportional(total, values)
    assert sum(found) == total and min(found) >= 1
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(found[a] <= found[b] + 1 for a, b in pairwise(order))


def run(machine: Any, job: Any, fold: bool = True) -> tuple[Built, Any]:
    built = build(machine, job, software(), LIBRARY, BuildOptions(fold=fold))
    return built, execute(built.program)


def test_each_replica_runs_its_number_and_all_meet_once() -> None:
    job = workload(layers=2, global_batch=7, replica_batches=(1, 2, 4))
    built, _ = run(cluster(3, 1, 1), job)
    forwards = {}
    for lane, queue in zip(built.program.lanes, built.program.queues, strict=True):
        if lane.name == "compute":
            forwards[lane.rank_class] = sum(built.program.tasks[t].name == "forward" for t in queue)
    assert sorted(forwards.values()) == [1, 2, 4]
    even, _ = run(cluster(3, 1, 1), workload(layers=2, global_batch=6))
    reductions = [sum(t.label == "reduce gradients" for t in b.program.tasks) for b in (built, even)]
    assert reductions[0] == reductions[1]


def test_the_same_products_are_executed_whoever_does_them() -> None:
    flops = []
    for split in ("even", (1, 1, 6), (2, 3, 3)):
        batch = 8 if split != "even" else 9
        built, timeline = run(cluster(3, 1, 1), workload(layers=2, global_batch=batch, replica_batches=split))
        flops.append(executed_flops(built, timeline) / batch)
    assert flops == pytest.approx([flops[0]] * 3)


@pytest.mark.parametrize("split", ["proportional", "balanced"])
def test_a_mixed_cluster_gains_from_uneven_shares(split: str) -> None:
    machine = mixed_cluster(2, 2, 1, dict(FABRICS[0]))
    shapes = {"layers": 4, "hidden": 2048, "sequence_length": 512, "global_batch": 64}
    _, even = run(machine, workload(**shapes))
    built, uneven = run(machine, workload(**shapes, replica_batches=split))
    counts = built.setting.replica_counts
    assert counts[0] == counts[1] > counts[2] == counts[3]
    assert uneven.makespan < 0.92 * even.makespan


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([(1, 2, 1, 2), (3, 1, 1, 1), (2, 2, 1, 1)]), st.sampled_from([1, 2]))
def test_folding_uneven_replicas_is_exact(split: tuple[int, ...], pp: int) -> None:
    job = workload(layers=2, global_batch=6 if sum(split) == 6 else sum(split), pp=pp, replica_batches=split)
    machine = cluster(4 * pp, 1, 1, dict(FABRICS[1]))
    _, folded = run(machine, job)
    _, unfolded = run(machine, job, fold=False)
    assert folded.makespan == pytest.approx(unfolded.makespan, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replica_batches": (1, 2)}, "needs 3 numbers"),
        ({"replica_batches": (1, 2, 2)}, "that add up to 6"),
        ({"replica_batches": "balanced", "zero": 3}, "meets after every micro-batch"),
        ({"replica_batches": "balanced", "global_batch": 2}, "do not give one to each of 3 replicas"),
    ],
)
def test_what_cannot_be_divided_is_a_fault(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        simulate(cluster(3, 1, 1), workload(**{"global_batch": 6, **changes}))
