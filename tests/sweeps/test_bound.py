"""The closed form never exceeds the engine, and is close enough to it to prune."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from simulator.engine.engine import execute
from simulator.program.builder import build
from simulator.results.predict import predict
from simulator.sweeps.bound import Bound, Bounds
from simulator.sweeps.plan_table import table_of
from simulator.sweeps.price_book import PriceBook
from tests.program.scenarios import LIBRARY
from tests.program.test_folding_is_exact import scenarios


def bounds(scenario: tuple[Any, Any, Any]) -> Bounds:
    machine, job, profile = scenario
    book = PriceBook(machine, job, LIBRARY, lambda name: profile)
    return Bound(book).of(table_of(job, machine.num_gpus, [job.plan]))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_no_step_is_faster_or_smaller_than_its_bound(scenario: tuple[Any, Any, Any]) -> None:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    answer = predict(machine, job, built, execute(built.program), {})
    least = bounds(scenario)
    assert least.step_time[0] <= answer.step_time_s
    assert least.peak_bytes[0] <= answer.memory.peak_bytes
    assert least.kernel_seconds[0] > 0.0
