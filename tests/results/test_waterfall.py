"""The waterfall ends at the MFU exactly, and its parts are what the breakdown says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from simulator.report.sweep_plot import svg
from simulator.report.waterfall_plot import waterfall_figure
from simulator.results.waterfall import waterfall
from tests.program.scenarios import cluster, equal_blocks, software
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
    losses = {loss.name: loss.share for loss in waterfall(prediction)}
    assert losses["bubble"] == pytest.approx(3 / 15, abs=1e-6)
    assert losses["imbalance"] == pytest.approx(0.0, abs=1e-6)


def test_uneven_stages_lose_to_imbalance() -> None:
    plan = {"pp": 2, "schedule": "1f1b", "layers_per_stage": (1, 3)}
    prediction = prediction_of((cluster(2, 1, 1), equal_blocks(4, 12, **plan), software()))
    losses = {loss.name: loss.share for loss in waterfall(prediction)}
    assert losses["imbalance"] > 0.2


def test_what_was_counted_falls_like_what_was_simulated() -> None:
    short, whole = from_catalogue(vpp=1), from_catalogue(vpp=1, periodic=False)
    for one, other in zip(waterfall(short), waterfall(whole), strict=True):
        assert one.share == pytest.approx(other.share, abs=1e-6)


def test_the_picture_is_the_same_every_time() -> None:
    prediction = from_catalogue(vpp=1)
    pictures = {svg(waterfall_figure(waterfall(prediction), prediction.mfu)) for _ in range(2)}
    assert len(pictures) == 1
    assert b"kernel efficiency" in pictures.pop()
