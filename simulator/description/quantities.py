"""How `400 Gb/s`, `80 GiB` and `2 us` become SI numbers, and why a bare `400` does not.

Bits and bytes, decimal and binary prefixes are never guessed. A prefix is applied to the written digits
(`float("3.35e12")`), not multiplied in afterwards, so the value is the float nearest to what was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from simulator.description.faults import shown

FROM_TEXT = {"from_text": True}
"""Validation context under which bare numbers are refused; without it (Python callers) they are SI."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*(\S.*)?")
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SMALL = {"n": -9, "u": -6, "µ": -6, "μ": -6, "m": -3, "": 0}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


@dataclass(frozen=True, slots=True)
class Unit:
    """value in SI = digits x 10^exponent x factor; the factor is a power of two or a small integer."""

    exponent: int = 0
    factor: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """A kind of quantity: its units, what a fault calls it, the units suggested for a bare number."""

    name: str
    units: dict[str, Unit]
    suggested: tuple[str, ...]
    example: str
    positive: bool = False


def _byte_units(suffixes: tuple[str, ...], bits: tuple[str, ...]) -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for endings, factor in ((suffixes, 1.0), (bits, 0.125)):
        for ending in endings:
            units |= {prefix + ending: Unit(e, factor) for prefix, e in _DECIMAL.items()}
            units |= {prefix + ending: Unit(0, factor * 2.0**e) for prefix, e in _BINARY.items()}
    return units


def _decimal_units(*names: str) -> dict[str, Unit]:
    return {prefix + name: Unit(e) for name in names for prefix, e in _DECIMAL.items()}


BYTES = Dimension("a size in bytes", _byte_units(("B",), ()), ("GB", "GiB"), "80 GiB")
BYTES_PER_SECOND = Dimension(
    "a data rate",
    _byte_units(("B/s", "Bps"), ("b/s", "bps", "bit/s")),
    ("Gb/s", "GB/s"),
    "400 Gb/s",
    positive=True,
)
FLOPS_PER_SECOND = Dimension(
    "a compute rate",
    _decimal_units("FLOP/s", "FLOPS", "FLOPs/s"),
    ("TFLOP/s", "GFLOP/s"),
    "312 TFLOP/s",
    positive=True,
)
SECONDS = Dimension(
    "a time",
    {prefix + "s": Unit(e) for prefix, e in _SMALL.items()}
    | {"min": Unit(0, 60.0), "h": Unit(0, 3600.0), "d": Unit(0, 86400.0)},
    ("us", "s"),
    "2 us",
)
WATTS = Dimension("a power", _decimal_units("W") | {"mW": Unit(-3)}, ("W", "kW"), "700 W")
JOULES = Dimension(
    "an energy", _decimal_units("J") | {"kWh": Unit(5, 36.0), "pJ": Unit(-12)}, ("J", "kWh"), "1 kWh"
)
HERTZ = Dimension("a frequency", _decimal_units("Hz"), ("MHz", "GHz"), "1.41 GHz", positive=True)
DOLLARS = Dimension(
    "a price", {"USD": Unit(), "kUSD": Unit(3), "MUSD": Unit(6)}, ("USD", "kUSD"), "15000 USD"
)

DIMENSIONS = (BYTES, BYTES_PER_SECOND, FLOPS_PER_SECOND, SECONDS, WATTS, JOULES, HERTZ, DOLLARS)


def parse_quantity(text: str, dimension: Dimension) -> float:
    """The SI value of `text`. Raises ValueError with a message that says what would be right."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{shown(text)} is not {dimension.name}; write e.g. {dimension.example}")
    digits, unit_name = match[1], (match[2] or "").strip()
    if not unit_name:
        return parse_bare(digits, dimension)
    unit = dimension.units.get(unit_name)
    if unit is None:
        raise ValueError(_unknown_unit(digits, unit_name, dimension))
    return checked(scaled(digits, unit), text, dimension)


def parse_bare(digits: str, dimension: Dimension) -> float:
    """A number without a unit: only zero, which reads the same in every unit, has a value."""
    if float(digits) == 0.0 and not dimension.positive:
        return 0.0
    raise ValueError(f"{shown(digits)} has no unit: is it {_examples(digits, dimension)}?")


def scaled(digits: str, unit: Unit) -> float:
    """digits x unit, the power of ten applied to the text so that nothing is rounded twice."""
    mantissa, _, exponent = digits.lower().partition("e")
    power = max(-9999, min(9999, int(exponent or 0) + unit.exponent))
    return float(f"{mantissa}e{power}") * unit.factor


def checked(value: float, text: str, dimension: Dimension) -> float:
    """The value, if it is one that the dimension can have."""
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} is too large")
    if value < 0 or (value == 0 and dimension.positive):
        raise ValueError(
            f"{shown(text)}: {dimension.name} must be {'above' if dimension.positive else 'at least'} 0"
        )
    return value


def _examples(digits: str, dimension: Dimension) -> str:
    """The readings of `digits`: `400 Gb/s (5e+10 B/s) or 400 GB/s (4e+11 B/s)`; large ones in base units."""
    names = dimension.suggested
    if abs(float(digits)) >= 1e6 and dimension in (BYTES, BYTES_PER_SECOND, FLOPS_PER_SECOND):
        names = {"GB": ("B", "KiB"), "Gb/s": ("b/s", "B/s"), "TFLOP/s": ("FLOP/s", "MFLOP/s")}[names[0]]
    base = next(name for name, unit in dimension.units.items() if unit == Unit())
    readings = []
    for name in names:
        value = scaled(digits, dimension.units[name])
        meaning = f" ({value:g} {base})" if dimension.units[name] != Unit() else ""
        readings.append(f"{digits} {name}{meaning}")
    return " or ".join(readings)


def _unknown_unit(digits: str, name: str, dimension: Dimension) -> str:
    written = shown(f"{digits} {name}")
    for other in DIMENSIONS:
        if other is not dimension and name in other.units:
            return f"{written} is {other.name}, not {dimension.name}; write e.g. {dimension.example}"
    if dimension is BYTES and name in BYTES_PER_SECOND.units | {n[:-2]: 0 for n in BYTES_PER_SECOND.units}:
        as_bytes = name.replace("b", "B")
        return (
            f"{written} counts bits, not bytes; write {float(digits) / 8:g} {as_bytes} or {digits} {as_bytes}"
        )
    near = [unit for unit in dimension.units if unit.lower() == name.lower()]
    if re.match(r"K[bB]", name):
        near = [unit for unit in dimension.units if unit in ("k" + name[1:], "Ki" + name[1:])]
    hint = " or ".join(f"{digits} {unit}" for unit in near) or _examples(digits, dimension)
    return f"unknown unit {shown(name)} for {dimension.name}; did you mean {hint}?"


def _validator(dimension: Dimension) -> Callable[[Any, ValidationInfo], Any]:
    def validate(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            return parse_quantity(value, dimension)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if info.context and info.context.get("from_text"):
                return parse_bare(repr(value), dimension)
            return checked(float(value), repr(value), dimension)
        raise ValueError(f"{shown(value)} is not {dimension.name}; write e.g. {dimension.example}")

    return validate


def _json_schema(dimension: Dimension) -> dict[str, Any]:
    names = "|".join(re.escape(name) for name in dimension.units)
    text = {
        "type": "string",
        "pattern": rf"^\s*{_NUMBER}\s*({names})\s*$",
        "examples": [dimension.example],
    }
    return text if dimension.positive else {"anyOf": [text, {"const": 0}]}


def _quantity(dimension: Dimension) -> tuple[Any, ...]:
    return dimension, BeforeValidator(_validator(dimension)), WithJsonSchema(_json_schema(dimension))


Bytes = Annotated[float, *_quantity(BYTES)]
BytesPerSecond = Annotated[float, *_quantity(BYTES_PER_SECOND)]
FlopsPerSecond = Annotated[float, *_quantity(FLOPS_PER_SECOND)]
Seconds = Annotated[float, *_quantity(SECONDS)]
Watts = Annotated[float, *_quantity(WATTS)]
Hertz = Annotated[float, *_quantity(HERTZ)]
Dollars = Annotated[float, *_quantity(DOLLARS)]


def _fraction(value: Any) -> Any:
    if isinstance(value, str) and value.strip().endswith("%"):
        digits = value.strip()[:-1].strip()
        if re.fullmatch(_NUMBER, digits):
            return scaled(digits, Unit(-2))
    return value


Fraction = Annotated[
    float,
    BeforeValidator(_fraction),
    Field(ge=0, le=1),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"%\s*$"}]}
    ),
]


def quantity_text(value: float, dimension: Dimension, unit: str | None = None) -> str:
    """`value` (SI) as text that reads back to exactly `value`, in `unit` or the one that keeps it short."""
    candidates = [unit] if unit else _display_units(dimension)
    texts = []
    for name in candidates:
        scale = dimension.units[name]
        digits = repr(value / scale.factor)
        mantissa, _, exponent = digits.partition("e")
        texts.append(f"{_shifted(mantissa, int(exponent or 0) - scale.exponent)} {name}")
    return min(texts, key=len)


def handy_text(value: float, dimension: Dimension) -> str:
    """`quantity_text` in a unit that leaves 1 to 1,000, if there is one."""
    units = {name: unit.factor * 10.0**unit.exponent for name, unit in dimension.units.items()}
    handy = [name for name in _display_units(dimension) if 1.0 <= abs(value) / units[name] < 1000.0]
    texts = [quantity_text(value, dimension, name) for name in handy]
    return min(texts, key=len, default=quantity_text(value, dimension))


def _display_units(dimension: Dimension) -> list[str]:
    skipped = ("Bps", "bps", "bit/s", "FLOPS", "FLOPs/s", "µs", "μs", "b/s", "min", "h", "d", "kUSD", "MUSD")
    return [name for name in dimension.units if not name.endswith(skipped)]


def _shifted(mantissa: str, power: int) -> str:
    """mantissa x 10^power by moving the point, in plain digits (no rounding)."""
    from decimal import Decimal

    number = Decimal(mantissa).scaleb(power).normalize()
    return f"{number:f}" if -7 < number.adjusted() < 16 else str(number)
