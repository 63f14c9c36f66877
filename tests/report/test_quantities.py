"""Quantities are written with three digits and the unit that suits their size."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.report import quantities as write


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("13.41 s", 13.414),
        ("287.1 s", 287.1),
        ("5,745 s", 5745.2),
        ("461.0 ms", 0.461),
        ("1.00 s", 0.99999),
        ("35.00 µs", 35e-6),
        ("0 s", 0.0),
    ],
)
def test_seconds(written: str, value: float) -> None:
    assert write.seconds(value) == written


def test_other_units() -> None:
    assert write.size(80 * 2**30) == "80.00 GiB"
    assert write.size(0.0) == "0 B"
    assert write.watts(2.29e6) == "2.29 MW"
    assert write.energy(3.6e6) == "1.00 kWh"
    assert write.number(536188.2) == "536,188" and write.number(152.68) == "152.7"
    assert write.dollars(3136.884) == "$3,136.88" and write.dollars(0.1834) == "$0.183"
    assert write.change(0.144) == "+14 %" and write.change(-0.001) == "same"


def test_what_is_not_nothing_does_not_read_as_nothing() -> None:
    assert write.percent(0.0) == "0.0 %"
    assert write.percent(1e-5) == "< 0.1 %"
    assert write.percent(0.8131) == "81.3 %"


@given(st.floats(1e-9, 1e6))
def test_seconds_read_back_to_half_a_percent(value: float) -> None:
    number, unit = re.fullmatch(r"([\d.,]+) (s|ms|µs|ns)", write.seconds(value)).groups()  # type: ignore[union-attr]
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.006)
