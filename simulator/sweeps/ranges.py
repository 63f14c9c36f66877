"""Numbers and quantities between two ends, and how one of them is drawn."""

from __future__ import annotations

from math import exp, log
from random import Random
from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.description.quantities import DIMENSIONS, Dimension, parse_quantity, quantity_text


class Range(Description):
    """Numbers drawn between two ends."""

    between: tuple[float | str, float | str] = Field(description="Least and largest: numbers, or quantities.")
    scale: Literal["linear", "log"] = Field(
        default="linear", description="Even in the value or in its logarithm."
    )
    whole: bool = Field(default=False, description="Round to whole numbers.")

    @property
    def wrong(self) -> str | None:
        """What is wrong with it, None if nothing is."""
        try:
            low, high = (_value(end) for end in self.between)
        except ValueError as error:
            return str(error)
        if not low < high:
            return f"{self.between[0]} is not below {self.between[1]}"
        return "a logarithmic range must be above zero" if self.scale == "log" and low <= 0.0 else None

    def draw(self, source: Random) -> float | int | str:
        """A number, or a quantity in the unit of the first end."""
        low, high = (_value(end) for end in self.between)
        share = source.random()
        value = low + share * (high - low)
        if self.scale == "log":
            value = exp(log(low) + share * (log(high) - log(low)))
        value = float(f"{value:.6g}")
        unit = _unit(self.between[0])
        if unit is not None:
            return quantity_text(value, *unit)
        return round(value) if self.whole else value


def _value(end: float | str) -> float:
    unit = _unit(end)
    return float(end) if unit is None else parse_quantity(str(end), unit[0])


def _unit(end: float | str) -> tuple[Dimension, str] | None:
    """The dimension and the unit that an end of a range is written in; None for a plain number."""
    if not isinstance(end, str):
        return None
    for dimension in DIMENSIONS:
        name = end.strip().lstrip("+-.0123456789eE").strip()
        if name in dimension.units:
            return dimension, name
    raise ValueError(f"{end!r} is no number or quantity")
