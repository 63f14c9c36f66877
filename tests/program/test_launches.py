"""What it costs that the host waits for every kernel, and that batched products lose the matrix units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, blueprint, build
from simulator.program.pricing import ClassPricing
from simulator.program.track import chain_of
from simulator.results.breakdown import breakdown
from simulator.workloads.operators import Gemm, aligned
from tests.program.scenarios import LIBRARY, cluster, software, workload
from tests.program.test_folding_is_exact import scenarios


def pricing(**profile: Any) -> ClassPricing:
    return blueprint(cluster(1, 1, 1), workload(), software(**profile), LIBRARY).pricings[0]


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-7, 1e-3), st.booleans())
def test_a_host_that_waits_for_every_kernel_adds_every_launch(launch: float, backward: bool) -> None:
    priced = pricing(launch=launch, launch_backward=launch)
    blocking = replace(priced, software=priced.software.model_copy(update={"blocking_launches": True}))
    shard = workload().shard(frozenset(), "flash2")
    layer = workload().model.layers()[1]
    operations = layer.backward(shard) if backward else layer.forward(shard)
    ahead, waiting = (chain_of(operations, one, "compute", backward) for one in (priced, blocking))
    assert waiting.seconds == pytest.approx(ahead.seconds + ahead.host, rel=1e-12)
    assert waiting.lead == 0.0
    assert ahead.host >= launch * len(operations)


def test_a_step_takes_at_least_as_long_when_launches_block() -> None:
    steps = [
        execute(build(cluster(2, 1, 1), workload(pp=2), software(**profile), LIBRARY).program).makespan
        for profile in ({}, BUSY, {**BUSY, "blocking_launches": True})
    ]
    assert steps[0] < steps[1] < steps[2]


BUSY = {"launch": 1e-5, "launch_backward": 1e-5}


@given(st.sampled_from(["bf16", "fp32", "fp8"]), st.integers(1, 4096), st.integers(1, 4096))
def test_rows_are_aligned_when_all_are_whole_words(dtype: str, first: int, second: int) -> None:
    word = {"bf16": 8, "fp32": 4, "fp8": 16}[dtype]
    assert aligned(dtype, first, second) == (first % word == 0 and second % word == 0)


@pytest.mark.parametrize("head_dim", [108, 112, 150, 152])
def test_only_unaligned_batches_lose_the_matrix_units(head_dim: int) -> None:
    priced = pricing(unaligned_batches=0.5)
    product = Gemm(2048, 2048, head_dim, "bf16", batch=64, aligned=aligned("bf16", 2048, head_dim))
    gpu, _ = priced.gpus[0]
    without = product.flops / (0.5 * gpu.peak("fp32"))
    if head_dim % 8:
        assert priced.kernel_seconds(product) == pytest.approx(without)
    else:
        assert priced.kernel_seconds(product) < without / 5


def test_attention_over_odd_heads_is_unaligned_and_nothing_else_of_the_block_is() -> None:
    job = workload(hidden=960, heads=80)  # 80 heads of 12
    shard = job.shard(frozenset(), None)
    block = job.model.layers()[1]
    products = [
        operation
        for operation in (*block.forward(shard), *block.backward(shard))
        if isinstance(operation.what, Gemm)
    ]
    batched = {operation.what.batch > 1 for operation in products if not operation.what.aligned}
    assert batched == {True}
    assert sum(operation.what.batch > 1 for operation in products) == 6


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from([1e-6, 5e-6, 3e-5]))
def test_launches_that_nobody_waits_for_can_be_one_task(
    scenario: tuple[Any, Any, Any], launch: float
) -> None:
    machine, job, profile = scenario
    profile = profile.model_copy(
        update={"launch": launch, "launch_backward": launch, "step_overhead": 1e-3, "call": 1e-5}
    )
    merged, plain = (
        build(machine, job, profile, LIBRARY, BuildOptions(merge=merge)) for merge in (True, False)
    )
    ours, reference = execute(merged.program), execute(plain.program)
    assert ours.makespan == pytest.approx(reference.makespan, rel=1e-9)
    for rank_class in range(len(plain.program.rank_classes)):
        theirs = breakdown(plain.program, reference, rank_class)
        close = pytest.approx(theirs, rel=1e-9, abs=1e-9 * reference.makespan)
        assert breakdown(merged.program, ours, rank_class) == close


def test_a_host_far_ahead_has_one_launch_for_all_that_follow() -> None:
    job = workload(sequence_length=4096, hidden=1024, pp=2, global_batch=32)
    sizes = []
    for merge in (True, False):
        built = build(
            cluster(2, 1, 1), job, software(launch=1e-6, call=1e-6), LIBRARY, BuildOptions(merge=merge)
        )
        sizes.append(sum(task.kind == "launch" for task in built.program.tasks))
    assert sizes[0] < 10 < sizes[1] / 5
