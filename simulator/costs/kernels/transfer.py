"""Which calibration describes a GPU? Its own measurements, or those of the nearest architecture measured."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from simulator.costs.kernels.calibration import KernelCalibration

# All parameters are relative to datasheet rates, so they carry over; the error grows, which error bars must show.
NEAREST = {
    "volta": "a100-sxm",
    "pascal": "a100-sxm",
    "turing": "a100-sxm",
    "ampere": "a100-sxm",
    "ada": "a100-sxm",
    "hopper": "h100-sxm",
    "blackwell": "h100-sxm",
    "cdna2": "a100-sxm",
    "cdna3": "h100-sxm",
    "tpu": "a100-sxm",
}


def calibration_for(gpu: Any) -> KernelCalibration:
    """The calibration a described GPU names, else its architecture's with `transferred_from` set.

    ValueError for an architecture that nothing was measured on.
    """
    if gpu.calibration:
        return load_calibration(str(gpu.calibration))
    if gpu.architecture not in NEAREST:
        raise ValueError(
            f"no kernel calibration for architecture {gpu.architecture!r} (known: {', '.join(NEAREST)})"
        )
    source = load_calibration(NEAREST[gpu.architecture])
    return source.model_copy(update={"transferred_from": source.name})


@lru_cache(maxsize=64)
def load_calibration(name: str) -> KernelCalibration:
    """Read `hardware/calibrations/kernels/<name>.yaml` (or a path); ValueError if there is none."""
    path = Path(name) if name.endswith(".yaml") else _folder() / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise ValueError(f"no kernel calibration {name!r} (known: {known})")
    tree = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return KernelCalibration.model_validate({"name": path.stem, **tree})


def _folder() -> Path:
    package = Path(__file__).resolve().parents[2]
    installed = package / "_catalogue" / "hardware"
    return (installed if installed.is_dir() else package.parent / "hardware") / "calibrations" / "kernels"
