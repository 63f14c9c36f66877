"""Every study of the catalogue runs, agrees where it says so, and admits where it does not."""

from __future__ import annotations

import pytest

from simulator.description import catalogue, load
from simulator.studies.outcome import run_study
from simulator.studies.pictures import figure_of

LONG = ("axonn", "flexsp")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in catalogue.names("study")],
)
def test_study_agrees_but_for_its_known_gaps(name: str) -> None:
    outcome = run_study(load("study", name))
    surprises = [f"{f.name}: {f.ours:.4g}" for f in outcome.findings if not f.ok and f.gap is None]
    assert not surprises
    for index, plot in enumerate(outcome.study.plots):
        assert figure_of(outcome, index, plot).axes
