"""The virtual device keeps time: sleeps overshoot, the clock does not."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from simulator.validation.minicluster.virtual_device import VirtualDevice


class Clock:
    """Stands in for the time module: sleeps overshoot by a third of a millisecond."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 3e-4


def test_back_to_back_work_does_not_add_up_what_sleeps_overshoot(monkeypatch):
    monkeypatch.setattr("simulator.validation.minicluster.virtual_device.time", Clock())
    device = VirtualDevice()
    for _ in range(100):
        device.compute(0.002)
    spans = device.take_spans()
    assert spans[-1][1] - spans[0][0] == pytest.approx(0.2)
    assert all(later[0] == earlier[1] for earlier, later in pairwise(spans))


def test_work_after_a_pause_starts_when_it_is_asked_for():
    device = VirtualDevice()
    device.compute(0.001)
    time.sleep(0.01)
    before = time.monotonic()
    device.compute(0.001)
    assert device.take_spans()[-1][0] >= before


def test_work_after_waiting_for_something_else_is_not_chained():
    device = VirtualDevice()
    device.compute(0.005)
    device.waited()
    before = time.monotonic()
    device.compute(0.001)
    assert device.take_spans()[-1][0] >= before


def test_spans_are_handed_over_once():
    device = VirtualDevice()
    device.compute(0.0, "x")
    assert [label for _, _, label in device.take_spans()] == ["x"]
    assert device.take_spans() == []
