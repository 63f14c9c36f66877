"""Catalogue files with random damage still end in a description or in faults that have places, never in a crash."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.description import DescriptionError, catalogue, load
from simulator.description.kinds import KINDS

WORDS = ["0", "-1", "1e400", ".inf", ".nan", "0.5", "true", "null", "~", "[]", "{}", "''", "[1,2]", "{a:1}"]
WORDS += ["x", "nvswitch", "3", "GB/s", "4", "W", "gpt", "torus", "extends: ", "kind: ", "groups: "]
MARKS = [": ", "\n", "  ", "- ", "#", "'", '"', "&a ", "*a", "!!x ", "\t", "%", "|", "\x07"]


@lru_cache(maxsize=1)
def files() -> list[tuple[str, str]]:
    """(kind, text) of the catalogue's files, a few of each kind."""
    kinds = [kind for kind in KINDS if KINDS[kind].read_by]
    return [(k, path.read_text()) for k in kinds for path in list(catalogue.entries(k).values())[:4]]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_end_in_faults(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind, text = data.draw(st.sampled_from(files()))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(st.sampled_from(WORDS + MARKS)) + text[start + length :]
    file = tmp_path_factory.getbasetemp() / "damaged.yaml"
    file.write_text(text)
    try:
        assert load(kind, str(file)) is not None
    except DescriptionError as error:
        assert error.faults
        for fault in error.faults:
            assert fault.line >= 1 and fault.column >= 1 and fault.message and "\n" not in str(fault)
