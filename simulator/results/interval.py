"""How far off may a step time or a peak of memory be? Factors earned on published runs, wider where the hardware was
never measured.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from simulator.description.base import Named

if TYPE_CHECKING:
    from simulator.program.builder import Built


class Interval(Named):
    """Quantiles of measured over predicted, every source weighing the same."""

    kind: Literal["interval"] = Field("interval", description="Always `interval`.")
    nominal: float = Field(
        gt=0, lt=1, description="Part of the measurements that the interval is meant to hold."
    )
    low: float = Field(gt=0, description="Measured over predicted at its lower end.")
    high: float = Field(gt=0, description="Measured over predicted at its upper end.")
    transferred: float = Field(
        ge=1, description="Factor on the width (of the logarithm) where a calibration was carried over."
    )
    coverage: float = Field(
        ge=0,
        le=1,
        description="Part of the rows inside the interval that the other sources gave (leave one out).",
    )
    rows: int = Field(description="Measurements behind it.")


@lru_cache(maxsize=3)
def known_interval(name: str) -> Interval | None:
    """An interval of the catalogue; None where there is none yet."""
    from simulator.description import DescriptionError, load

    try:
        interval: Interval = load("interval", name)
    except DescriptionError:
        return None
    return interval


def bounds(step: float, built: Built) -> tuple[float | None, float | None]:
    """(low, high) seconds around a predicted step; null until earned."""
    experts = any(unit.whole.experts for stage in built.setting.content for unit in stage)
    interval = known_interval("steps-mixtures" if experts else "steps")
    if interval is None:
        return None, None
    width = interval.transferred if _is_transferred(built) else 1.0
    return step * interval.low**width, step * interval.high**width


def memory_factors() -> tuple[float, float]:
    """(low, high): how many times a predicted peak a measured one may be. What is allocated is not the hardware's."""
    interval = known_interval("memory")
    return (1.0, 1.0) if interval is None else (interval.low, interval.high)


def _is_transferred(built: Built) -> bool:
    """Whether kernels or collectives of any GPU were measured on another one."""
    from simulator.costs.kernels import calibration_for

    topology = built.communicators.communicators.topology
    return any(calibration_for(gpu).transferred_from is not None for gpu in topology.hardware)
