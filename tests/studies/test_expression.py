"""Expressions compute what they say, and can do nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.studies.expression import ExpressionError, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("2 ** 10", 1024),
        ("a.b[1] / 4", 0.5),
        ("[x * x for x in range(4) if x != 1]", [0, 4, 9]),
        ("[x * y for x in [1, 2] for y in [3, x]]", [3, 1, 6, 4]),
        ("order([3, 1, 2])", [1, 2, 0]),
        ("1 if a.b[0] > 3 else -1", -1),
        ("sum([1, 2, 3]) / len([1, 2, 3])", 2),
        ("interpolate(1.5, [1, 2], [10, 20])", 15),
        ("0 < 1 <= 1 and not 2 < 1", True),
    ],
)
def test_arithmetic(text: str, value: object) -> None:
    assert parse(text).value({"a": {"b": [1, 2]}}) == value


def test_names_are_those_left_open() -> None:
    assert parse("sum([x + y for x in xs]) + abs(z)").names == {"xs", "y", "z"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "().__class__",
        "a._secret",
        "(lambda: 1)()",
        "open('x')",
        "f'{a}'",
        "a := 1",
        "{1: 2}",
        "[*a]",
        "max(1, key=a)",
        "a.b()",
        "x; y",
        "1 +",
        "(" * 500 + ")" * 500,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0",
        "[1][3]",
        "'a' * 9",
        "[1] * 9",
        "range(100000)",
        "9.0 ** 9999",
        "'abc'.upper",
        "unknown + 1",
        "a.c",
    ],
)
def test_what_has_no_value_says_so(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text).value({"a": {"b": 1}})


def test_nested_lists_cannot_run_for_ever() -> None:
    text = "sum([1 for a in r for b in r for c in r])"
    with pytest.raises(ExpressionError, match="too many steps"):
        parse(text).value({"r": list(range(10_000))})


@given(st.text(max_size=40))
def test_no_text_does_harm(text: str) -> None:
    with suppress(ExpressionError):
        parse(text).value({})
