"""A collective calibration as the YAML text that it is read from."""

from __future__ import annotations

from simulator.costs.collectives import CollectiveCalibration
from simulator.costs.collectives.tuning import Tuner

UNITS = {"base": "us", "network_base": "us", "hop": "us", "network_hop": "us", "multi_node_hop": "us"}


def digits(value: float, significant: int = 3) -> str:
    """`value` to that many significant digits, without an exponent."""
    from decimal import Decimal

    return f"{Decimal(f'{value:.{significant - 1}e}'):f}"


def calibration_yaml(calibration: CollectiveCalibration) -> str:
    """Text that reads back to the calibration, its parameters rounded to three digits."""
    lines = [f"kind: {calibration.kind}", f"description: {_quoted(calibration.description)}"]
    lines += [f"{key}: {getattr(calibration, key)}" for key in ("library", "architecture", "interconnect")]
    if calibration.gpus:
        lines.append(f"gpus: [{', '.join(calibration.gpus)}]")
    if calibration.nics:
        lines.append(f"nics: [{', '.join(calibration.nics)}]")
    if calibration.scale_up_bandwidth is not None:
        lines.append(f"scale_up_bandwidth: {calibration.scale_up_bandwidth / 1e9:g} GB/s")
    if calibration.transferred_from is not None:
        lines.append(f"transferred_from: {calibration.transferred_from}")
    lines.append("algorithms:")
    for algorithm, protocols in calibration.algorithms.items():
        lines.append(f"  {algorithm}:")
        for protocol, rates in protocols.items():
            lines.append(f"    {protocol}: {_flow(rates.model_dump(exclude_defaults=True))}")
    lines.append("choices:")
    lines += [f"  {op}: [{', '.join(names)}]" for op, names in calibration.choices.items()]
    if calibration.operations:
        lines.append("operations:")
        for op, factors in calibration.operations.items():
            lines.append(f"  {op}: {_flow(factors.model_dump(exclude_defaults=True))}")
    if calibration.tuner is not None:
        lines.append(f"tuner: {_tuner(calibration.tuner)}")
    if calibration.host_cache is not None:
        lines.append(f"host_cache: {calibration.host_cache / 2**20:g} MiB")
        lines.append(f"host_cached: {digits(calibration.host_cached)}")
    if calibration.crowding:
        lines.append(f"crowding: {digits(calibration.crowding)}")
    if calibration.network_overlap != 1.0:
        lines.append(f"network_overlap: {digits(calibration.network_overlap)}")
    if calibration.in_network_min_ranks != 2:
        lines.append(f"in_network_min_ranks: {calibration.in_network_min_ranks}")
    if calibration.network_rings is not None:
        lines.append(f"network_rings: {calibration.network_rings}")
    if calibration.threads is not None:
        lines.append(f"threads: {calibration.threads}")
    if calibration.request is not None:
        lines.append(f"request: {digits(calibration.request * 1e6)} us")
    lines.append(f"gpu_share: {digits(calibration.gpu_share)}")
    lines.append("sources:")
    lines += [f"  {key}: {_quoted(text)}" for key, text in calibration.sources.items()]
    return "\n".join(lines) + "\n"


def _tuner(tuner: Tuner) -> str:
    rates = {"ring": tuner.ring, "ll": tuner.ll, "ll128": tuner.ll128}
    shown = [f"{name}: {digits(rate / 1e9)} GB/s" for name, rate in rates.items()]
    if tuner.in_network is not None:
        shown.append(f"in_network: {digits(tuner.in_network)}")
    if tuner.network is not None:
        credited = (f"{key}: {digits(rate / 1e9)} GB/s" for key, rate in tuner.network.model_dump().items())
        shown.append(f"network: {{{', '.join(credited)}}}")
    return f"{{{', '.join(shown)}}}"


def _flow(values: dict[str, float]) -> str:
    """`{base: 8.14 us, hop: 1 us, scale_up: 0.682}`."""
    shown = [
        f"{key}: {digits(value * 1e6)} us" if key in UNITS else f"{key}: {digits(value)}"
        for key, value in values.items()
    ]
    return "{" + ", ".join(shown) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
