"""The reference pages are complete and current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulator.description.fields import keys_of
from simulator.description.kinds import KINDS
from simulator.description.reference import _with_parts

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def test_the_committed_pages_are_current(tmp_path: Path) -> None:
    # In a process of its own: other tests register model families of theirs.
    command = [sys.executable, "-m", "simulator.description.reference", str(tmp_path)]
    subprocess.run(command, check=True, cwd=FOLDER.parents[1])
    assert sorted(page.name for page in tmp_path.iterdir()) == sorted(page.name for page in FOLDER.iterdir())
    for page in tmp_path.iterdir():
        remedy = "run python -m simulator.description.reference docs/reference"
        assert (FOLDER / page.name).read_text() == page.read_text(), f"{page.name} is out of date: {remedy}"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].read_by])
def test_every_key_is_explained(kind: str) -> None:
    for cls in _with_parts(KINDS[kind].classes()):
        assert cls.__doc__, f"{cls.__name__} has no docstring"
        silent = [key for key, field in keys_of(cls).items() if not field.description and key != "kind"]
        assert not silent, f"{cls.__name__}: no description for {silent}"
