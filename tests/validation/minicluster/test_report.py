"""`clustersim validate minicluster --quick --json` end to end: structure, and bounds wide enough for a busy machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from simulator.calibration.minicluster.commands import namespaces
from simulator.validation.minicluster import report
from simulator.validation.minicluster.cases import CONTENTION, SHARING
from simulator.validation.minicluster.predicting import contention_seconds, sharing_seconds
from tests.calibration.minicluster.conftest import needs_namespaces


def test_where_nothing_can_be_built_the_reason_is_told(monkeypatch, capsys):
    monkeypatch.setattr(
        "simulator.calibration.minicluster.privileges.reason_against", lambda: "no iproute2 here"
    )
    assert report.validate_minicluster(quick=True, as_json=True) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "no iproute2 here" in told.err


@pytest.mark.parametrize("case", SHARING, ids=lambda case: case.name)
def test_no_flow_is_predicted_faster_than_its_bytes_allow(case):
    fastest = max(flow.size for flow in case.flows) / 12.5e6
    assert all(seconds >= fastest * (1 - 1e-9) for seconds in sharing_seconds(case))


def test_jobs_over_an_oversubscribed_spine_slow_each_other_down():
    by_name = {case.name: contention_seconds(case) for case in CONTENTION}
    assert by_name["three pairs"][0] == pytest.approx(1.5 * by_name["two pairs"][0], rel=0.01)
    assert by_name["three pairs, two spines"][0] > by_name["three pairs"][0]  # hashed flows collide


@needs_namespaces
@pytest.mark.long
def test_the_quick_suite_reports_every_source_and_leaves_nothing_behind(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, "-c", "from simulator.cli.main import main; main()"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "CLUSTERSIM_RUN_DIR": str(tmp_path / "run"),
    }
    done = subprocess.run(
        [*command, "validate", "minicluster", "--quick", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"sharing", "collectives", "contention", "steps", "activity"} <= set(found["sources"])
    assert found["machine"]["backend"] == "gloo"
    for name, scored in found["sources"].items():
        assert scored["rows"] > 0
        assert scored["mape"] < 0.25, name
    assert found["order"]["right"] >= 0.8 * found["order"]["pairs"]
    assert namespaces("clustersim.validate-") == []
