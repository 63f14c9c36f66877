"""Every command, file and Python block of README, tutorial and how-to pages works as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Step, steps


def test_the_pages_that_everyone_reads_show_commands_that_run_anywhere() -> None:
    everyone = {"README", "tutorial", "own-model", "own-cluster", "read-the-trace", "read-the-breakdown"}
    assert everyone <= {page.stem for page in PAGES}
    assert all(any(step.language == "console" for step in steps(page)) for page in PAGES)


def test_the_readme_sets_up_with_exactly_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    assert [len(block.strip().splitlines()) for block in blocks] == [1, 1]
    assert "pip install -q ." in blocks[0] and blocks[0].strip().endswith("clustersim run selene gpt3-175b")
    assert "'.[test]'" in blocks[1] and blocks[1].strip().endswith("pytest")


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*PAGES, *(ROOT / "docs").rglob("*.md")]
    links = {
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not target.startswith("http")
    }
    assert not [(page.name, target) for page, target in links if not (page.parent / target).exists()]


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    shim = tmp_path / "bin"
    shim.mkdir()
    command = shim / "clustersim"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m simulator.cli.main "$@"\n')
    command.chmod(0o755)
    for step in steps(page):
        _run(step, tmp_path, shim)


def _run(step: Step, folder: Path, shim: Path) -> None:
    if step.language == "yaml":
        (folder / step.name).write_text(step.text, encoding="utf-8")
        return
    command = ["bash", "-c", step.text] if step.language == "console" else [sys.executable, "-c", step.text]
    environment = {"PATH": f"{shim}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == step.exit_code, f"{step.text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
