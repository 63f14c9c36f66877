"""Studies are checked when they are read, and compare what they say they compare."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.description import DescriptionError, load
from simulator.studies.fitting import golden_section, refit
from simulator.studies.outcome import run_study
from simulator.studies.study import Study


def study(**changes: Any) -> Study:
    tree: dict[str, Any] = {
        "name": "test",
        "title": "a test",
        "about": "nothing",
        "base": {"cluster": "hgx-h100-cluster", "workload": "equal-blocks", "set": {"plan.dp": 1}},
        "cases": {
            "one": {"set": {"plan.pp": 1}},
            "many": {"over": {"plan.pp": [2, 4], "workload.global_batch": [4, 8]}},
        },
        "checks": [{"name": "time", "ours": "many[2, 4].step_time_s", "low": 0.0, "why": "any"}],
    }
    found: Study = load("study", {**tree, **changes})
    return found


def test_cases_of_a_grid_are_called_by_their_coordinates() -> None:
    ratio = "many[4, 8].step_time_s * 4 / one.step_time_s"
    checks = [
        {"name": "ratio", "ours": ratio, "published": 11 / 8 * 8 / 32, "within": "0.001 %", "why": "1F1B"}
    ]
    (finding,) = run_study(study(checks=checks)).findings
    assert finding.ok
    assert not finding.gap


def test_each_gives_a_check_per_row() -> None:
    checks = [
        {
            "name": "pipeline of {p}",
            "each": {"p": [2, 4], "t": [1, 0]},
            "ours": "many[p, 8].step_time_s * t",
            "low": 0.1,
            "high": "1000",
            "why": "any",
        }
    ]
    found = run_study(study(checks=checks)).findings
    assert [f.name for f in found] == ["pipeline of 2", "pipeline of 4"]
    assert [f.ok for f in found] == [True, False]
    assert found[1].to_dict()["ok"] is False


def test_derived_settings_follow_the_coordinates() -> None:
    cases = {"many": {"over": {"plan.pp": [2, 4]}, "derived": {"workload.global_batch": "pp * 2"}}}
    values = {"batches": "[many[p].workload.global_batch for p in [2, 4]]"}
    checks = [
        {
            "name": "batch",
            "ours": "batches[1] - batches[0]",
            "published": 4,
            "within": 0,
            "why": "2 more stages",
        }
    ]
    assert run_study(study(cases=cases, values=values, checks=checks)).ok


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": {"a-b": {}}}, "must be a word"),
        ({"cases": {"a": {"set": {"pp": 1}}}}, "must start with one of"),
        ({"values": {"x": "y", "y": "x"}}, "called y"),
        ({"values": {"x": "1 +"}}, "is no expression"),
        ({"values": {"x": "y + 1"}}, "there is no case, value or column called y"),
        ({"checks": [{"name": "", "ours": "1", "why": ""}]}, "give either within"),
        ({"checks": [{"name": "", "ours": "1", "within": 0.1, "why": ""}]}, "of what"),
        (
            {"checks": [{"name": "", "ours": "1", "low": 1, "why": "", "each": {"a": [1], "b": [1, 2]}}]},
            "columns of unequal length: 1, 2",
        ),
        ({"cases": {"a": {"over": {"plan.pp": [1]}, "derived": {"plan.tp": "qq"}}}}, "called qq"),
    ],
)
def test_faults_are_found_when_a_study_is_read(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        study(**changes)


def test_a_case_that_cannot_run_is_a_fault_and_not_a_number() -> None:
    with pytest.raises(DescriptionError):
        run_study(
            study(
                cases={
                    "many": {
                        "over": {"plan.pp": [2], "workload.global_batch": [4]},
                        "set": {"plan.schedule": "gpip"},
                    }
                }
            )
        )


def test_an_expression_without_value_is_placed() -> None:
    with pytest.raises(DescriptionError, match=r"checks.0.ours: divides by zero"):
        run_study(study(checks=[{"name": "", "ours": "1 / (one.gpus - one.gpus)", "low": 0, "why": ""}]))


def test_golden_section_finds_the_minimum() -> None:
    assert golden_section(lambda x: (x - 3.0) ** 2, 0.1, 100.0) == pytest.approx(3.0, rel=1e-2)


def test_refitting_finds_what_was_put_in() -> None:
    """The time of memory-bound blocks is inverse to the bandwidth, so a given time has one bandwidth."""
    found = refit(
        study(
            fits={
                "cluster.node.gpu.memory.bandwidth": {
                    "value": 1.0,
                    "low": 0.5,
                    "high": 5.0,
                    "unit": "TB/s",
                    "ours": ["one.step_time_s"],
                    "published": [run_study(study(values={"t": "one.step_time_s"})).names["t"]],
                    "why": "test",
                }
            }
        )
    )
    assert found["cluster.node.gpu.memory.bandwidth"] == pytest.approx(3.35, rel=2e-2)
