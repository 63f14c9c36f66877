"""A kernel calibration as the YAML text that it is read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from simulator.costs.kernels.calibration import KernelCalibration

SECONDS = {
    "latency": "us",
    "tile_overhead": "us",
    "split_overhead": "us",
    "block_overhead": "us",
    "throttle_time": "ms",
}
PER_SECOND = {"us": 1e6, "ms": 1e3}
LEAST = {"us": 1e-3, "ms": 1e-3}
"""Below this a time is written as zero: it came from a bound of the fit."""


def calibration_yaml(calibration: KernelCalibration) -> str:
    """Text that reads back to the calibration, its parameters rounded to four digits."""
    lines = [f"kind: {calibration.kind}", f"description: {json.dumps(calibration.description)}"]
    lines += [f"gpu: {calibration.gpu}", "gemm:"]
    for dtype, parameters in calibration.gemm.items():
        values = parameters.model_dump()
        tiles = ", ".join(f"[{m}, {n}]" for m, n in values.pop("tiles"))
        lines += [f"  {dtype}:", f"    tiles: [{tiles}]", *_block(values, 4)]
    if calibration.library:
        lines.append(f"library: {_flow(calibration.library)}")
    lines.append("attention:")
    for part in ("forward", "backward", "serving"):
        table = getattr(calibration.attention, part)
        lines += [f"  {part}:"] if table else []
        lines += [f"    {size}: {_flow(found.model_dump())}" for size, found in table.items()]
    lines += [f"  implementations: {_flow(calibration.attention.implementations)}", "memory:"]
    lines.append(f"  latency: {_time('latency', calibration.memory.latency)}")
    if calibration.memory.kept_row is not None:
        lines.append(f"  kept_row: {_digits(calibration.memory.kept_row / 1e3)} kB")
    lines += ["  efficiency:", *_block(calibration.memory.efficiency, 4)]
    if calibration.quantize:
        lines.append("quantize:")
        lines += [f"  {dtype}: {_flow(found.model_dump())}" for dtype, found in calibration.quantize.items()]
    if calibration.transferred_from:
        lines.append(f"transferred_from: {calibration.transferred_from}")
    lines.append("fits:")
    for part, fit in calibration.fits.items():
        lines += [f"  {part}:", f"    rows: {fit.rows}", f"    error: {fit.error:.4f}"]
        shown = ", ".join(f"{name}: {error:.4f}" for name, error in fit.holdout.items())
        lines += [f"    holdout: {{{shown}}}", f"    note: {json.dumps(fit.note)}"]
    lines.append("sources:")
    lines += [f"  {key}: {json.dumps(text)}" for key, text in calibration.sources.items()]
    return "\n".join(lines) + "\n"


def _block(values: Mapping[str, Any], indent: int) -> list[str]:
    """One line for each value; several to a line would hide which one changed."""
    return [f"{' ' * indent}{name}: {_value(name, value)}" for name, value in values.items()]


def _flow(values: Mapping[Any, Any]) -> str:
    return "{" + ", ".join(f"{name}: {_value(name, value)}" for name, value in values.items()) + "}"


def _value(name: str, value: float | Mapping[int, float]) -> str:
    if isinstance(value, Mapping):
        return _flow(value)
    return _time(name, value) if name in SECONDS else _digits(value)


def _time(name: str, seconds: float) -> str:
    unit = SECONDS[name]
    value = seconds * PER_SECOND[unit]
    return f"{_digits(value) if value >= LEAST[unit] else 0} {unit}"


def _digits(value: float) -> str:
    """Four significant digits without an exponent; what is next to nothing becomes zero."""
    if isinstance(value, int):
        return str(value)
    return "0.0" if abs(value) < 1e-5 else f"{Decimal(f'{value:.4g}'):f}"
