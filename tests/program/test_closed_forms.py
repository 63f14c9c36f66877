"""Pipelines and rings whose step time is known exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.program.builder import blueprint, build
from simulator.simulation import SimulationOptions
from simulator.simulation import run as run_blueprint
from tests.program.scenarios import LIBRARY, cluster, equal_blocks, software, workload

FREE = LIBRARY.model_copy(
    update={
        "algorithms": {
            name: {
                p: r.model_copy(update={"base": 0.0, "hop": 0.0, "network_hop": 0.0})
                for p, r in rates.items()
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


def steady(stages: int, count: int, layers: int, **plan: object) -> tuple[float, float]:
    """(step, busy time of one stage) as a prediction has them."""
    job = equal_blocks(layers, count, pp=stages, weight_bytes=2e9, **plan)
    built, timeline = run_blueprint(
        blueprint(cluster(stages, 1, 1), job, software(overlap=ALL), FREE), SimulationOptions()
    )
    lanes = [i for i, lane in enumerate(built.program.lanes) if lane.name == "compute"]
    return timeline.makespan, float(timeline.lane_busy[lanes[0]])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(0, 30))
def test_zb_h1_waits_a_third_of_what_1f1b_waits(stages: int, more: int) -> None:
    count = stages + more
    ours, busy = steady(stages, count, 2 * stages, schedule="zb-h1")
    theirs, same = steady(stages, count, 2 * stages, schedule="1f1b")
    assert busy == pytest.approx(same, rel=1e-9)
    assert ours - busy == pytest.approx((theirs - same) / 3, rel=1e-6, abs=1e-9 * busy)


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 4), st.integers(0, 20))
def test_zb_v_leaves_no_bubble_where_steps_run_into_one_another(stages: int, more: int) -> None:
    count = 2 * stages + more
    shapes = {"schedule": "zb-v", "vpp": 2}
    step, busy = steady(stages, count, 4 * stages, **shapes)
    assert step - busy == pytest.approx((stages - 1) / 2 / 3 / count * busy, rel=1e-6)
    step, busy = steady(stages, count, 4 * stages, overlap={"steps": True}, **shapes)
    assert step == pytest.approx(busy, rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([2, 4, 6]), st.integers(0, 4))
def test_dualpipe_waits_half_of_the_stages_times_what_its_authors_say(stages: int, more: int) -> None:
    """(p/2 - 1)(F&B + B - 3W), with F = I = W and F&B = F + B: p - 2 thirds of what a micro-batch takes a stage."""
    count = 2 * stages + 2 * more
    step, busy = steady(stages, count, stages, schedule="dualpipe", vpp=2, overlap={"ep": True})
    assert step - busy == pytest.approx((stages - 2) / 3 / count * busy, rel=1e-6, abs=1e-9 * busy)
    apart, same = steady(stages, count, stages, schedule="dualpipe", vpp=2)
    assert busy == pytest.approx(same, rel=1e-9)
    assert apart <= step * (1 + 1e-9)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 5), st.integers(0, 6))
def test_dualpipe_v_waits_as_dualpipe_on_twice_as_many_stages(stages: int, more: int) -> None:
    """(p - 1)(F&B + B - 3W) of half-stages; half of it where pairs run one after the other."""
    count = 2 * stages + more
    shapes = {"schedule": "dualpipe-v", "vpp": 2}
    step, busy = steady(stages, count, 2 * stages, overlap={"ep": True}, **shapes)
    half_stage = busy / count / 2
    assert step - busy == pytest.approx((stages - 1) * (3 + 2 - 3) / 3 * half_stage, rel=1e-6)
    apart, same = steady(stages, count, 2 * stages, **shapes)
    assert busy == pytest.approx(same, rel=1e-9)
    assert apart - same == pytest.approx((stages - 1) / 3 * half_stage, rel=1e-6)


@pytest.mark.parametrize(("stages", "count", "gain"), [(4, 4, 1.75), (4, 8, 1.375), (8, 8, 1.875)])
def test_xpipe_gains_the_bubble_of_gpipe(stages: int, count: int, gain: float) -> None:
    """The bounds on its speedup of Guan et al. 2019: 1.75, 1.38, 1.88."""
    ours, _ = steady(stages, count, stages, schedule="xpipe")
    gpipe, _ = steady(stages, count, stages, schedule="gpipe")
    assert gpipe / ours == pytest.approx(gain, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 12), st.sampled_from(["pipedream", "pipedream-2bw", "xpipe"]))
def test_without_a_flush_no_stage_ever_waits(stages: int, count: int, schedule: str) -> None:
    step, busy = steady(stages, count, 2 * stages, schedule=schedule)
    assert step == pytest.approx(busy, rel=1e-9)


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
