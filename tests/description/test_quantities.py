"""Quantities: exact, explicit about bits and bytes, decimal and binary, and helpful when wrong."""

from __future__ import annotations

from fractions import Fraction as Exact

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simulator.description.quantities import (
    BYTES,
    BYTES_PER_SECOND,
    DIMENSIONS,
    DOLLARS,
    FLOPS_PER_SECOND,
    FROM_TEXT,
    HERTZ,
    SECONDS,
    Bytes,
    BytesPerSecond,
    Dimension,
    Fraction,
    Seconds,
    parse_quantity,
    quantity_text,
)

dimensions = st.sampled_from(DIMENSIONS)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("400 Gb/s", BYTES_PER_SECOND, 50e9),
        ("400 Gbps", BYTES_PER_SECOND, 50e9),
        ("400Gb/s", BYTES_PER_SECOND, 50e9),
        ("3.35 TB/s", BYTES_PER_SECOND, 3.35e12),
        ("1 GiB/s", BYTES_PER_SECOND, 2.0**30),
        ("80 GiB", BYTES, 80 * 2.0**30),
        ("80 GB", BYTES, 80e9),
        ("2 us", SECONDS, 2e-6),
        ("2 µs", SECONDS, 2e-6),
        ("1 min", SECONDS, 60.0),
        ("0", SECONDS, 0.0),
        ("1.41 GHz", HERTZ, 1.41e9),
        ("989 TFLOP/s", FLOPS_PER_SECOND, 989e12),
        ("15000 USD", DOLLARS, 15000.0),
    ],
)
def test_reads_what_vendors_write(text: str, dimension: Dimension, value: float) -> None:
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "parts"),
    [
        ("400", BYTES_PER_SECOND, ["no unit", "400 Gb/s (5e+10 B/s)", "400 GB/s (4e+11 B/s)"]),
        ("4e11", BYTES_PER_SECOND, ["4e11 b/s (5e+10 B/s)", "4e11 B/s"]),
        ("80", BYTES, ["80 GB (8e+10 B)", "80 GiB (8.58993e+10 B)"]),
        ("80 Gb", BYTES, ["counts bits", "10 GB", "80 GB"]),
        ("8 KB", BYTES, ["8 kB", "8 KiB"]),
        ("400 gb/s", BYTES_PER_SECOND, ["400 Gb/s", "400 GB/s"]),
        ("700 W", BYTES_PER_SECOND, ["is a power, not a data rate"]),
        ("2", SECONDS, ["2 us", "2 s"]),
        ("-2 us", SECONDS, ["at least 0"]),
        ("0 Gb/s", BYTES_PER_SECOND, ["above 0"]),
        ("1e999 B", BYTES, ["too large"]),
        ("fast", BYTES_PER_SECOND, ["is not a data rate", "400 Gb/s"]),
        ("1,000 us", SECONDS, ["unknown unit"]),
        ("", SECONDS, ["is not a time"]),
    ],
)
def test_says_what_would_be_right(text: str, dimension: Dimension, parts: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        parse_quantity(text, dimension)
    for part in parts:
        assert part in str(caught.value)


@given(dimension=dimensions, data=st.data(), value=st.floats(1e-9, 1e18))
def test_any_value_written_in_any_unit_reads_back(
    dimension: Dimension, data: st.DataObject, value: float
) -> None:
    unit = data.draw(st.sampled_from(sorted(dimension.units)))
    back = parse_quantity(quantity_text(value, dimension, unit), dimension)
    # a unit of 60 or 3600 is no power of two or ten, so its one division may round; all others are exact
    odd = dimension.units[unit].factor in (36.0, 60.0, 3600.0, 86400.0)
    assert back == pytest.approx(value, rel=1e-15) if odd else back == value


@given(dimension=dimensions, value=st.floats(1e-9, 1e18))
def test_the_shortest_text_reads_back(dimension: Dimension, value: float) -> None:
    back = parse_quantity(quantity_text(value, dimension), dimension)
    assert back == pytest.approx(value, rel=1e-15)


@given(digits=st.decimals(0, 10**6, places=4).map(lambda d: f"{d:f}"), unit=st.sampled_from(["n", "u", "m"]))
def test_a_prefix_is_not_a_second_rounding(digits: str, unit: str) -> None:
    power = {"n": 9, "u": 6, "m": 3}[unit]
    nearest = float(Exact(digits) / 10**power)
    assert parse_quantity(f"{digits} {unit}s", SECONDS) == nearest


@given(st.text(max_size=20))
def test_no_text_ends_in_anything_but_a_value_or_a_value_error(text: str) -> None:
    for dimension in DIMENSIONS:
        try:
            assert parse_quantity(text, dimension) >= 0
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize("kind", [Bytes, BytesPerSecond, Seconds])
@pytest.mark.parametrize("value", [400, 2.5, True, None, [400], {"a": 1}])
def test_a_bare_value_in_a_file_is_refused(kind: object, value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value, context=FROM_TEXT)


def test_python_callers_give_si_numbers() -> None:
    assert TypeAdapter(BytesPerSecond).validate_python(50e9) == 50e9
    with pytest.raises(ValidationError, match="above 0"):
        TypeAdapter(BytesPerSecond).validate_python(0)
    with pytest.raises(ValidationError, match="too large"):
        TypeAdapter(Seconds).validate_python(float("inf"))


@pytest.mark.parametrize(("value", "expected"), [("85 %", 0.85), ("7%", 0.07), (0.5, 0.5), (1, 1.0)])
def test_fractions_may_be_percentages(value: object, expected: float) -> None:
    assert TypeAdapter(Fraction).validate_python(value) == expected


@pytest.mark.parametrize("value", [85, "120 %", -0.1, "half"])
def test_fractions_lie_between_zero_and_one(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Fraction).validate_python(value)
