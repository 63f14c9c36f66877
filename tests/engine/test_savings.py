"""Each exact saving of the engine, and all together, leave every time as it is without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.engine import PLAIN, EngineOptions, Timeline, execute
from simulator.program.program import Program
from tests.engine.programs import programs

SAVINGS = ("private", "dominance", "merge_phases", "solo_chains", "incremental", "cache")


def assert_same(ours: Timeline, reference: Timeline) -> None:
    for name in ("start", "end", "lane_busy", "use"):
        np.testing.assert_allclose(getattr(ours, name), getattr(reference, name), rtol=1e-9, atol=1e-9)
    for name in ("task", "phase", "start", "work_start", "end"):
        np.testing.assert_allclose(
            getattr(ours.spans, name), getattr(reference.spans, name), rtol=1e-9, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("saving", SAVINGS)
@given(program=programs())
def test_each_saving_alone_changes_nothing(saving: str, program: Program) -> None:
    assert_same(execute(program, options=replace(PLAIN, **{saving: True})), execute(program, options=PLAIN))


@settings(max_examples=150)
@given(program=programs())
def test_all_savings_together_change_nothing(program: Program) -> None:
    assert_same(execute(program), execute(program, options=PLAIN))


@pytest.mark.parametrize("saving", SAVINGS)
@given(program=programs())
def test_leaving_one_saving_out_changes_nothing(saving: str, program: Program) -> None:
    assert_same(execute(program, options=replace(EngineOptions(), **{saving: False})), execute(program))
