"""The wheel works on its own: installed into a fresh environment it lists its catalogue from any folder."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("clustersim-*.whl")
    return built


@pytest.mark.long
def test_the_wheel_holds_the_package_with_its_catalogue_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"simulator", next(top for top in tops if top.endswith(".dist-info"))}
    for half in ("hardware", "workloads"):
        shipped = {name for name in names if name.startswith(f"simulator/_catalogue/{half}/")}
        present = {f"simulator/_catalogue/{p.relative_to(ROOT)}" for p in (ROOT / half).rglob("*.yaml")}
        assert present and present == {name for name in shipped if name.endswith(".yaml")}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


@pytest.mark.long
def test_an_installed_wheel_lists_its_catalogue_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=tmp_path,
    )
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    # the dependencies come from the environment that runs the tests, so that nothing is fetched
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = run(python, "-c", "import simulator; print(simulator.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(environment)
    listed = json.loads(run(environment / "bin" / "clustersim", "list", "--json", cwd=tmp_path))
    here = json.loads(run(sys.executable, "-m", "simulator.cli.main", "list", "--json", cwd=ROOT))
    assert listed == here and len(listed["gpu"]) > 10 and len(listed["model"]) > 10
    shown = run(environment / "bin" / "clustersim", "show", "model/gpt3-175b", cwd=tmp_path)
    assert "hidden: 12288" in shown
