"""How a quantity is written for a person: three digits and the unit that suits its size."""

from __future__ import annotations

from collections.abc import Sequence

SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTES = ((2.0**50, "PiB"), (2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
WATTS = ((1e6, "MW"), (1e3, "kW"), (1.0, "W"))
WATT_HOURS = ((1e6, "MWh"), (1e3, "kWh"), (1.0, "Wh"), (1e-3, "mWh"))


def seconds(value: float) -> str:
    return _scaled(value, SECONDS)


def size(value: float) -> str:
    """Bytes in binary units."""
    return _scaled(value, BYTES)


def watts(value: float) -> str:
    return _scaled(value, WATTS)


def energy(joules: float) -> str:
    return _scaled(joules / 3600.0, WATT_HOURS)


def percent(share: float, digits: int = 1) -> str:
    """`81.3 %`; what is not nothing never reads as nothing."""
    smallest = 10.0**-digits
    if 0.0 < share * 100.0 < smallest / 2:
        return f"< {smallest:.{digits}f} %"
    return f"{share * 100.0:.{digits}f} %"


def change(share: float) -> str:
    """`+14 %`, `-2 %`, `same`."""
    return f"{share * 100.0:+.0f} %" if abs(share) >= 0.005 else "same"


def number(value: float) -> str:
    """Four significant digits, thousands set apart: `9,772`, `152.7`, `0.04831`."""
    if value == 0.0:
        return "0"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def dollars(value: float) -> str:
    """Two decimals, more where that would leave fewer than three digits."""
    if value >= 1.0 or value == 0.0:
        return f"${value:,.2f}"
    return f"${value:.3g}" if value >= 1e-4 else f"${value:.2e}"


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """In the largest unit that leaves at least 1, else in the smallest."""
    if value == 0.0:
        return f"0 {units[-1][1] if units[-1][0] == 1.0 else units[0][1]}"
    scale, unit = next((pair for pair in units if abs(value) >= pair[0] * 0.9995), units[-1])
    scaled = value / scale
    digits = 0 if abs(scaled) >= 999.5 else 1 if abs(scaled) >= 99.95 else 2
    return f"{scaled:,.{digits}f} {unit}"
