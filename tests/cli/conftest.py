"""The command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from simulator.cli.main import DONE, main

Clustersim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def clustersim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Clustersim:
    """Runs the command line in this process: arguments → (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["clustersim", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(DONE)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
