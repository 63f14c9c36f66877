"""Pipelines and rings whose step time is known exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.program.builder import build
from tests.program.scenarios import LIBRARY, cluster, equal_blocks, software, workload

FREE = LIBRARY.model_copy(
    update={
        "algorithms": {
            name: {
                p: r.model_copy(update={"base": 0.0, "hop": 0.0, "network_hop": 0.0}) for p, r in rates.items()
            }
            for name, rates in LIBRARY.algorithms.items()
        }
    }
)


def run(stages: int, micro_batches: int, layers: int, **plan: object) -> tuple[float, float]:
    """(step, busy time of one stage)."""
    job = equal_blocks(layers, micro_batches, pp=stages, **plan)
    built = build(cluster(stages, 1, 1), job, software(overlap=ALL), FREE)
    timeline = execute(built.program)
    lanes = [i for i, lane in enumerate(built.program.lanes) if lane.name == "compute"]
    return timeline.makespan, float(timeline.lane_busy[lanes[0]])


ALL = {"dp_gradients": True, "dp_parameters": False, "tp": True, "pp": True}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from(["gpipe", "1f1b"]))
def test_gpipe_and_1f1b_idle_p_minus_1_of_m_plus_p_minus_1(stages: int, count: int, schedule: str) -> None:
    step, busy = run(stages, count, 2 * stages, schedule=schedule)
    assert 1 - busy / step == pytest.approx((stages - 1) / (count + stages - 1), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(2, 4))
def test_interleaving_divides_the_bubble_by_the_chunks(stages: int, groups: int, chunks: int) -> None:
    count = groups * stages
    step, busy = run(stages, count, stages * chunks, vpp=chunks)
    assert 1 - busy / step == pytest.approx((stages - 1) / (chunks * count + stages - 1), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 16))
def test_gradients_take_the_time_of_a_ring(ranks: int) -> None:
    """2(n-1)/n S/B + latency, exposed in full without overlap."""
    plain = {"dp_gradients": False, "dp_parameters": False, "tp": True, "pp": True}
    job = workload(global_batch=ranks, zero=0)
    built = build(cluster(ranks, 1, 1), job, software(overlap=plain), LIBRARY)
    timeline = execute(built.program)
    (task,) = [i for i, t in enumerate(built.program.tasks) if t.label == "reduce gradients"]
    size = 4.0 * sum(c.whole.dense for stage in built.setting.content for c in stage)
    rates = LIBRARY.algorithms["ring"]["simple"]
    shape = built.communicators.communicators.shapes("dp_cp")[0][0]
    steps = 2 * (ranks - 1)
    expected = rates.base + steps * (rates.network_hop + shape.hop_latency)
    expected += steps / ranks * size / (25e9 * rates.nic)
    assert float(timeline.end[task] - timeline.start[task]) == pytest.approx(expected, rel=1e-9)
