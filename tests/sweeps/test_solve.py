"""Inverse questions: the value found is where the condition begins to hold, and turns are admitted."""

from __future__ import annotations

from math import pi, sin

import pytest

from simulator.description.faults import KeyFaults
from simulator.simulation import simulate
from simulator.sweeps.changes import Design
from simulator.sweeps.objectives import Constraint
from simulator.sweeps.solve import TOLERANCE, _Search, solve
from tests.program.scenarios import cluster, equal_blocks, workload

NIC = "cluster.node.nic.bandwidth"


def design() -> Design:
    return Design(cluster(4, 1, 1), workload(layers=2, hidden=1024, global_batch=8))


def step(bandwidth: float) -> float:
    changed = design().with_value(NIC, bandwidth)
    return simulate(changed.cluster, changed.workload).step_time_s


def test_the_bandwidth_found_is_just_enough() -> None:
    wanted = (step(1e9) + step(100e9)) / 2
    found = solve(design(), NIC, Constraint("step_time_s", "<=", wanted), 1e9, 100e9)
    assert found.monotone and found.value is not None
    assert step(found.value) <= wanted < step(found.value * (1 - 2 * TOLERANCE))
    assert found.holds == ((found.value, 100e9),)
    assert (found.written is not None and found.written.endswith("b/s")) or found.written.endswith("B/s")


def test_a_condition_out_of_reach_holds_nowhere() -> None:
    found = solve(design(), NIC, Constraint("step_time_s", "<=", 0.0), 1e9, 100e9)
    assert found.holds == () and found.value is None


def test_an_equation_is_refused() -> None:
    with pytest.raises(KeyFaults, match="compare by <= or >="):
        solve(design(), NIC, Constraint("step_time_s", "=", 1.0), 1e9, 100e9)


def test_values_are_written_in_a_unit_that_suits_their_size() -> None:
    assert design().written(NIC, 425835e3) == "425.835 MB/s"
    assert design().written(NIC, 50e9) in ("50 GB/s", "400 Gb/s")


def test_numbers_of_gpus_are_those_that_the_batch_divides_over() -> None:
    whole = Design(cluster(4, 1, 1), equal_blocks(2, 8))
    one = whole.with_value("gpus", 1)
    rate = simulate(one.cluster, one.workload).tokens_per_s
    assert rate is not None
    found = solve(whole, "gpus", Constraint("days", "<=", 1e9 / rate / 86400 * 0.4), tokens=1e9)
    assert found.value == 4.0
    assert {sample.value for sample in found.samples} <= {1.0, 2.0, 4.0}


def test_values_that_cannot_run_have_no_answer() -> None:
    found = solve(design(), "workload.global_batch", Constraint("samples_per_s", ">=", 0.0), 4, 64)
    assert all((sample.answer is None) == bool(sample.value % 4) for sample in found.samples)


def test_turns_are_reported_with_every_range_that_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Search, "_simulate", lambda self, value: sin(value))
    found = solve(design(), NIC, Constraint("mfu", ">=", 0.0), 1.0, 12.0)
    assert not found.monotone
    assert [pytest.approx(end, rel=2e-3) for ends in found.holds for end in ends] == [1.0, pi, 2 * pi, 3 * pi]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("cluster.node.nik.bandwidth", "did you mean nic"),
        ("node.nic.bandwidth", "keys start with"),
        ("cluster.node.nic.vendor", "not a number"),
    ],
)
def test_wrong_keys_are_told(key: str, message: str) -> None:
    with pytest.raises(KeyFaults, match=message):
        solve(design(), key, Constraint("mfu", ">=", 0.4))


def test_whole_numbers_are_those_with_which_the_plan_can_run() -> None:
    found = solve(design(), "plan.tp", Constraint("mfu", ">=", 0.0))
    assert [sample.value for sample in found.samples if sample.answer is None] == []
    assert [sample.value for sample in found.samples][:2] == [1.0, 2.0]


def test_days_without_a_number_of_tokens_is_an_error_that_says_so() -> None:
    with pytest.raises(KeyFaults, match="tokens"):
        solve(design(), "gpus", Constraint("days", "<=", 30.0))
