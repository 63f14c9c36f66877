"""GPUs and calibrations that the tests of kernel models share."""

from functools import lru_cache

from simulator.costs.kernels import Chip, KernelCalibration, calibration_for, chip_of
from simulator.description import load

CALIBRATED = ("a100-sxm-80", "h100-sxm", "h200", "b200", "gb200", "b300", "gb300", "l40s", "v100-sxm2-16")


@lru_cache
def gpu(name: str):
    return load("gpu", name)


def chip(name: str) -> Chip:
    return chip_of(gpu(name))


def calibration(name: str) -> KernelCalibration:
    return calibration_for(gpu(name))
