"""The waterfall ends at the MFU exactly, and its parts are what the breakdown says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from simulator.engine.engine import execute
from simulator.program.program import Lane, Phase, Program, Resource, Task
from simulator.report.sweep_plot import svg
from simulator.report.waterfall_plot import waterfall_figure
from simulator.results.breakdown import breakdown
from simulator.results.prediction import Prediction
from simulator.results.waterfall import waterfall
from simulator.simulation import SimulationOptions, simulate
from tests.program.scenarios import cluster, equal_blocks, software, workload
from tests.program.test_folding_is_exact import scenarios
from tests.results.predictions import from_catalogue, prediction_of


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_peak_minus_losses_is_the_mfu(scenario: tuple[Any, Any, Any]) -> None:
    prediction = prediction_of(scenario)
    losses = waterfall(prediction)
    assert 1.0 - sum(loss.share for loss in losses) == pytest.approx(prediction.mfu, abs=1e-12)
    assert all(loss.seconds == pytest.approx(loss.share * prediction.step_time_s) for loss in losses)
    assert all(loss.share >= -1e-9 for loss in losses if loss.name not in ("kernel efficiency", "imbalance"))


def test_equal_stages_lose_the_bubble_of_the_closed_form_and_no_imbalance() -> None:
    prediction = prediction_of((cluster(4, 1, 1), equal_blocks(4, 12, pp=4, schedule="1f1b"), software()))
    losses = shares(prediction)
    assert losses["bubble"] == pytest.approx(3 / 15, abs=1e-6)
    assert losses["imbalance"] == pytest.approx(0.0, abs=1e-6)


def test_uneven_stages_lose_to_imbalance() -> None:
    plan = {"pp": 2, "schedule": "1f1b", "layers_per_stage": (1, 3)}
    prediction = prediction_of((cluster(2, 1, 1), equal_blocks(4, 12, **plan), software()))
    losses = shares(prediction)
    assert losses["imbalance"] > 0.2


def test_what_was_counted_falls_like_what_was_simulated() -> None:
    short, whole = from_catalogue(vpp=1), from_catalogue(vpp=1, periodic=False)
    assert shares(short) == pytest.approx(shares(whole), abs=1e-6)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("name", ["fsdp2-2024-eager", "megatron-core-ci"])
def test_a_host_that_runs_ahead_of_a_cut_pipeline_does_as_in_a_whole_one(name: str, schedule: str) -> None:
    """It launches other micro-batches while the stream waits for the stage before, which is a bubble in both."""
    job = workload(layers=8, global_batch=64, pp=4, schedule=schedule, software=name)
    short, whole = (simulate(cluster(4, 1, 1), job, SimulationOptions(periodic=cut)) for cut in (True, False))
    assert short.run.repetitions and not whole.run.repetitions
    assert shares(short) == pytest.approx(shares(whole), abs=1e-9)


def test_a_host_is_waited_for_where_the_stream_waits_for_nothing_else() -> None:
    """The second kernel waits half a second for its launch, the third as long as another stage sends."""
    program = Program(
        resources=[Resource("gpu", "gpu", 1.0)],
        lanes=[Lane("compute", 0), Lane("host", 0), Lane("pp-recv", 0), Lane("compute", 1)],
        tasks=[
            Task((Phase("compute", "first", 0.0, latency=1.0),), (0,)),
            Task((Phase("launch", "launch", 0.0, latency=1.5),), (1,)),
            Task((Phase("compute", "second", 0.0, latency=1.0),), (0,), (1,)),
            Task((Phase("launch", "launch", 0.0, latency=2.0),), (1,)),
            Task((Phase("compute", "elsewhere", 0.0, latency=4.0),), (3,)),
            Task((Phase("pp", "activation", 0.0, latency=0.5),), (2,), (4,)),
            Task((Phase("compute", "third", 0.0, latency=1.0),), (0,), (3, 5)),
        ],
        queues=[[0, 2, 6], [1, 3], [5], [4]],
    )
    found = breakdown(program, execute(program), 0)
    wanted = {"compute": 3.0, "launch": 0.5, "bubble": 1.5, "pp": 0.5}
    assert {kind: seconds for kind, seconds in found.items() if seconds} == pytest.approx(wanted)


def shares(prediction: Prediction) -> dict[str, float]:
    return {loss.name: loss.share for loss in waterfall(prediction)}


def test_the_picture_is_the_same_every_time() -> None:
    prediction = from_catalogue(vpp=1)
    pictures = {svg(waterfall_figure(waterfall(prediction), prediction.mfu)) for _ in range(2)}
    assert len(pictures) == 1
    assert b"kernel efficiency" in pictures.pop()
