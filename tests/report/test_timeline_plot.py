"""The picture shows each lane as busy as it was, in both panels, without pyplot."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from simulator.report.timeline_plot import MOST_CLASSES, _phase_colours, _shares, timeline_figure
from tests.program.test_folding_is_exact import scenarios
from tests.results.predictions import from_catalogue, prediction_of


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_shares_of_a_lane_add_up_to_its_busy_time_and_never_exceed_one(
    scenario: tuple[Any, Any, Any],
) -> None:
    prediction = prediction_of(scenario)
    program, timeline = prediction.built.program, prediction.run
    edges = np.linspace(0.0, timeline.makespan, 101)
    colours, _ = _phase_colours(program)
    for lane in range(len(program.lanes)):
        found = _shares(program, timeline, lane, edges, colours)
        shares = sum((share for _, share in found), np.zeros(100))
        assert shares.max() <= 1.0 + 1e-9
        busy = float(shares.sum() * (edges[1] - edges[0]))
        assert busy == pytest.approx(timeline.lane_busy[lane], rel=1e-9, abs=1e-15)


def test_two_panels_with_a_row_per_lane_and_a_legend_of_what_is_there() -> None:
    figure = timeline_figure(from_catalogue())
    whole, part = figure.axes
    rows = [label.get_text() for label in whole.get_yticklabels()]
    assert [row for row in rows if row.startswith("stage")] == [f"stage {i}  compute" for i in range(8)]
    assert whole.get_xlim() == pytest.approx((0.0, from_catalogue().whole.run.makespan))
    start, end = part.get_xlim()
    assert 0.0 < start < end < whole.get_xlim()[1]
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"forward", "backward", "tp", "pp", "optimizer"} <= names and "offload" not in names


def test_a_window_may_be_chosen_and_long_pipelines_are_thinned_out() -> None:
    prediction = from_catalogue(pp=32, vpp=1, tp=2, recompute="full")
    figure = timeline_figure(prediction, window=(0.5, 1.0))
    assert figure.axes[1].get_xlim() == pytest.approx((0.5, 1.0))
    stages = [label.get_text() for label in figure.axes[0].get_yticklabels() if "compute" in label.get_text()]
    assert len(stages) == MOST_CLASSES
    assert (stages[0], stages[-1]) == ("stage 0  compute", "stage 31  compute")


def test_a_notebook_gets_a_picture_without_pyplot() -> None:
    code = (
        "import sys\n"
        "from tests.results.predictions import from_catalogue\n"
        "figure = from_catalogue().plot()\n"
        "assert figure._repr_png_().startswith(b'\\x89PNG')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
