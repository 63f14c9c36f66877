"""The front is what the definition says, on random points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simulator.sweeps.pareto import pareto_front


@given(arrays(float, st.tuples(st.integers(0, 30), st.integers(1, 4)), elements=st.integers(0, 5).map(float)))
def test_front_is_what_nothing_beats(values: np.ndarray) -> None:
    front = pareto_front(values)
    for row, kept in zip(values, front, strict=True):
        beaten = any((other <= row).all() and (other < row).any() for other in values)
        assert kept == (not beaten)


def test_missing_numbers_are_never_on_the_front() -> None:
    assert pareto_front([[np.nan, 0.0], [1.0, 1.0]]).tolist() == [False, True]
