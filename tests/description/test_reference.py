"""The reference pages are complete and current."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.description.fields import keys_of
from simulator.description.kinds import KINDS
from simulator.description.reference import _with_parts, pages

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def test_the_committed_pages_are_current() -> None:
    for name, text in pages().items():
        remedy = "run python -m simulator.description.reference docs/reference"
        assert (FOLDER / name).read_text() == text, f"docs/reference/{name} is out of date: {remedy}"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].read_by])
def test_every_key_is_explained(kind: str) -> None:
    for cls in _with_parts(KINDS[kind].classes()):
        assert cls.__doc__, f"{cls.__name__} has no docstring"
        silent = [key for key, field in keys_of(cls).items() if not field.description and key != "kind"]
        assert not silent, f"{cls.__name__}: no description for {silent}"
