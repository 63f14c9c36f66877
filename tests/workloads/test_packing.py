"""Every packing keeps all documents, and none overfills a row."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.workloads.packing import PACKINGS, attended, best_fit, end_to_end, first_fit

ROOM = 100
DOCUMENTS = st.lists(st.integers(1, ROOM), min_size=1, max_size=40)


@pytest.mark.parametrize("rule", PACKINGS)
@given(documents=DOCUMENTS)
def test_tokens_are_conserved_and_rows_hold_them(rule: str, documents: list[int]) -> None:
    rows = PACKINGS[rule](documents, ROOM)
    assert sum(map(sum, rows)) == sum(documents)
    assert all(0 < sum(row) <= ROOM for row in rows)
    if rule != "concatenate":
        assert Counter(length for row in rows for length in row) == Counter(documents)


@given(documents=DOCUMENTS)
def test_end_to_end_fills_every_row_but_the_last(documents: list[int]) -> None:
    assert all(sum(row) == ROOM for row in end_to_end(documents, ROOM)[:-1])


@pytest.mark.parametrize("rule", [first_fit, best_fit])
@given(documents=DOCUMENTS)
def test_no_two_rows_would_fit_into_one(rule: object, documents: list[int]) -> None:
    fullness = sorted(map(sum, rule(documents, ROOM)))  # type: ignore[operator]
    assert len(fullness) < 2 or fullness[0] + fullness[1] > ROOM


@given(documents=DOCUMENTS, shuffled=st.randoms())
def test_best_fit_does_not_depend_on_the_order_of_documents(documents: list[int], shuffled: object) -> None:
    other = list(documents)
    shuffled.shuffle(other)  # type: ignore[attr-defined]
    assert best_fit(other, ROOM) == best_fit(documents, ROOM)


def test_known_packings() -> None:
    documents = [50, 60, 40, 30, 20]
    assert first_fit(documents, ROOM) == [(50, 40), (60, 30), (20,)]
    assert best_fit(documents, ROOM) == [(60, 40), (50, 30, 20)]
    assert end_to_end(documents, ROOM) == [(50, 50), (10, 40, 30, 20)]


def test_a_mask_of_rows_joins_documents() -> None:
    assert attended((3, 4), "document") == (3, 4)
    assert attended((3, 4), "row") == (7,)
