"""The command line: quick help, exit codes, names, and no traceback for anything that a user can type."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from simulator.cli.main import BAD_INPUT, COMMANDS, DONE, available
from simulator.description import load


def test_help_lists_the_commands_without_importing_them() -> None:
    code = (
        "import sys; sys.argv = ['clustersim', '--help']\n"
        "from simulator.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'pandas', 'numpy', 'rich', 'yaml', 'matplotlib', 'simpy', 'torch'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took = time.perf_counter() - start
    assert "HEAVY []" in done.stdout
    for name in available():
        assert re.search(rf"^  {name} ", done.stdout, re.M)
    assert took < 2.0  # 0.18 s alone on the machine it was written on; the bound allows for a busy one


def test_every_command_shows_its_help(clustersim) -> None:
    for name in available():
        code, out, err = clustersim(name, "--help")
        assert (code, err) == (DONE, "") and "Usage: clustersim" in out, name


def test_commands_are_listed_in_one_table() -> None:
    assert set(available()) <= set(COMMANDS)
    assert all(entry.help.endswith(".") for entry in COMMANDS.values())


def test_a_mistyped_command_gets_a_suggestion(clustersim) -> None:
    code, _, err = clustersim("shw")
    assert code == BAD_INPUT and "there is no command shw; did you mean show?" in err


def test_list_names_the_catalogue_by_kind(clustersim) -> None:
    code, out, _ = clustersim("list", "workloads", "--json")
    names = json.loads(out)
    assert code == DONE and "gpt3-175b" in names["model"] and "gpu" not in names
    code, out, _ = clustersim("list", "models")
    assert code == DONE and "  gpt3-175b " in out
    code, _, err = clustersim("list", "modls")
    assert code == BAD_INPUT and "did you mean model?" in err


def test_what_show_prints_can_be_read_back(clustersim, design: Path) -> None:
    code, out, _ = clustersim("show", "cluster.yaml", "--set", "node.nic.bandwidth=400 Gb/s")
    assert code == DONE
    (design / "shown.yaml").write_text(out)
    changed = load("cluster", "cluster.yaml", {"node.nic.bandwidth": "400 Gb/s"})
    assert load("cluster", "shown.yaml") == changed


def test_show_json_is_in_si_units_with_defaults(clustersim, design: Path) -> None:
    code, out, _ = clustersim("show", "gpu.yaml", "--json")
    shown = json.loads(out)
    assert code == DONE and shown["memory"]["capacity"] == 80 * 2**30 and shown["price"] is None


def test_show_prints_every_kind_of_that_name(clustersim) -> None:
    code, out, _ = clustersim("show", "gpt3-175b")
    assert code == DONE and "# model: " in out and "# workload: " in out
    code, out, _ = clustersim("show", "model/gpt3-175b")
    assert code == DONE and "# workload: " not in out
    code, _, err = clustersim("show", "gpt3-175c")
    assert code == BAD_INPUT and "did you mean gpt3-175b?" in err


def test_check_says_all_faults_of_all_files(clustersim, design: Path) -> None:
    (design / "bad.yaml").write_text("kind: nic\nvendor: 3\nbandwidth: 3\nlatency: 3\n")
    code, out, err = clustersim("check", "cluster.yaml", "bad.yaml", "node.yaml")
    assert code == BAD_INPUT
    assert out.splitlines() == ["cluster.yaml: ok (cluster)", "node.yaml: ok (node)"]
    assert len(err.splitlines()) == 3


def test_schema_prints_json(clustersim) -> None:
    code, out, _ = clustersim("schema", "gpu")
    assert code == DONE and json.loads(out)["$schema"].startswith("https://json-schema.org")
    code, _, err = clustersim("schema", "gpuu")
    assert code == BAD_INPUT and "did you mean gpu?" in err


def test_output_may_be_cut_off_by_the_reader() -> None:
    code = "from simulator.cli.main import main; import sys; sys.argv = ['clustersim', 'schema', 'cluster']; main()"
    command = f'{sys.executable} -c "{code}" | head -n 1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_version(clustersim) -> None:
    code, out, _ = clustersim("--version")
    assert code == DONE and re.fullmatch(r"clustersim \d+\.\d+\.\d+\n", out)
