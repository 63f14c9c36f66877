"""How is a kernel calibration made from one's own microbenchmarks (`clustersim calibrate run`)?

A few dozen measurements cannot settle every parameter, so a calibration of the same or a near GPU is the start, and
only what they can tell is fitted again.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from simulator.calibration import fit_attention, fit_gemm, fit_memory
from simulator.calibration.microbenchmarks.memory_bound import WIDTH
from simulator.calibration.microbenchmarks.store import Measurement, read_results
from simulator.calibration.relative_fit import relative_error
from simulator.costs.kernels.calibration import Fit, KernelCalibration
from simulator.costs.kernels.chip import Chip, chip_of
from simulator.costs.kernels.transfer import gemm_parameters
from simulator.hardware.gpu import GPU
from simulator.workloads.operators import DTYPE_BYTES

if TYPE_CHECKING:
    import pandas as pd

OPERATORS = {"gelu": "activation", "layer_norm": "norm", "rms_norm": "norm"}
"""Operators measured -> as the model layers call them; the others have the same name."""

ADAM_BYTES = 28.0  # per parameter in fp32: weight, gradient, two moments read; weight and moments written
SETTLED_BY_FEW = len(fit_gemm.FEW) + 2  # fewest GEMMs of a format for which its parameters are fitted


def refit(path: Path, gpu: GPU, base: KernelCalibration) -> KernelCalibration:
    """`base` with everything fitted again that the results file at `path` says something about.

    Raises StoreError for a file that holds no results, ValueError where it holds no kernels.
    """
    results = read_results(path)
    chip, note = chip_of(gpu), f"measured: {path.name}, {results.machine.get('device', 'this machine')}"
    found = base.model_copy(update={"gpu": gpu.name, "transferred_from": None, "fits": {}})
    for part in (_with_gemms, _with_attention, _with_memory):
        found = part(found, results.measurements, chip, note)
    if not found.fits:
        raise ValueError(
            f"{path}: no kernels measured (gemm, attention, memory_bound), or too few: {SETTLED_BY_FEW} gemm of a "
            "format, two sizes of each operator"
        )
    return found


def _with_gemms(
    calibration: KernelCalibration, measurements: tuple[Measurement, ...], chip: Chip, note: str
) -> KernelCalibration:
    rows = _table(
        {"batch": 1, **case.parameters, "seconds": _seconds(m, "gemm")}
        for m in measurements
        if (case := m.case).benchmark == "gemm" and m.seconds
    )
    if rows.empty:
        return calibration
    for dtype, own in rows.groupby("dtype"):
        if len(own) < SETTLED_BY_FEW:
            continue
        base = gemm_parameters(calibration, str(dtype))
        found = fit_gemm.refit_gemm(own, chip, str(dtype), base)
        times = fit_gemm.predicted(own, chip, str(dtype), found)
        calibration = _joined(
            calibration, f"gemm.{dtype}", own, times, note, gemm={**calibration.gemm, str(dtype): found}
        )
    return calibration


def _with_attention(
    calibration: KernelCalibration, measurements: tuple[Measurement, ...], chip: Chip, note: str
) -> KernelCalibration:
    rows = _table(
        {
            **{name: m.case[name] for name in ("batch", "heads", "kv_heads", "head_dim", "causal", "dtype")},
            "seq_q": m.case["sequence"],
            "seq_kv": m.case["sequence"],
            "head_dim_v": m.case["head_dim"],
            "direction": direction,
            "seconds": _seconds(m, direction),
        }
        for m in measurements
        if m.case.benchmark == "attention" and m.seconds
        for direction in ("forward", "backward")
        if direction in m.seconds
    )
    if rows.empty:
        return calibration
    for direction, own in rows.groupby("direction"):
        sizes = sorted(int(str(size)) for size, some in own.groupby("head_dim") if len(some) > 1)
        if len(own) < len(fit_attention.SHARED) + len(sizes) or not sizes:
            continue
        found = fit_attention.fit_training(own, chip, sizes)[str(direction)]
        times = fit_attention.predicted(own, chip, found)
        attention = calibration.attention.model_copy(update={str(direction): found})
        calibration = _joined(calibration, f"attention.{direction}", own, times, note, attention=attention)
    return calibration


def _with_memory(
    calibration: KernelCalibration, measurements: tuple[Measurement, ...], chip: Chip, note: str
) -> KernelCalibration:
    rows = _table(row for m in measurements if m.seconds for row in _memory_rows(m))
    if rows.empty or len(rows) < rows.op.nunique() + 2:
        return calibration
    found = fit_memory.fit_memory(rows, chip, calibration.memory)
    times = fit_memory.predicted(rows, chip, found)
    return _joined(calibration, "memory", rows, times, note, memory=found)


def _memory_rows(measurement: Measurement) -> list[dict[str, object]]:
    case = measurement.case
    if case.benchmark == "memory_bound":
        size = case["bytes_read"] + case["bytes_written"]
        op = OPERATORS.get(case["op"], case["op"])
        row = min(WIDTH, case["elements"]) * DTYPE_BYTES[case["dtype"]] if op == "norm" else 0.0
        seconds = _seconds(measurement, case["op"])
    elif case.benchmark == "optimizer" and case["implementation"] == "fused" and case["tensors"] == 1:
        op, size, row = "optimizer", ADAM_BYTES * case["elements"], 0.0
        seconds = _seconds(measurement, "step")
    else:
        return []
    return [{"op": op, "bytes": size, "row": row, "kernels": 1, "seconds": seconds}]


def _joined(
    calibration: KernelCalibration,
    part: str,
    rows: pd.DataFrame,
    times: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    note: str,
    **changed: object,
) -> KernelCalibration:
    fit = Fit(rows=len(rows), error=relative_error(times, rows.seconds.to_numpy()), note=note)
    update = {
        **changed,
        "fits": {**calibration.fits, part: fit},
        "sources": {**calibration.sources, part: note},
    }
    return calibration.model_copy(update=update)


def _seconds(measurement: Measurement, series: str) -> float:
    return median(measurement.seconds[series])


def _table(rows: object) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))  # type: ignore[call-overload]
