"""Which values of a study's fitted settings bring our numbers nearest to some of the published ones?

One setting after the other, each by golden section on a logarithmic scale between its bounds, in turn until they
settle: the publications leave at most two numbers open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, log, sqrt

from simulator.studies.cases import Cases
from simulator.studies.outcome import Names, evaluate, fitted_settings
from simulator.studies.study import Study

ROUNDS = 3
STEPS = 14
GOLDEN = (sqrt(5.0) - 1.0) / 2.0


def refit(study: Study, announce: Callable[[str], None] = lambda name: None) -> dict[str, float]:
    """Key → value of every fitted setting."""
    found = {key: fit.value for key, fit in study.fits.items()}
    for _ in range(ROUNDS if len(found) > 1 else 1):
        for key, fit in study.fits.items():

            def miss(value: float, key: str = key) -> float:
                announce(f"{key} = {value:.4g}")
                return misfit(study, {**found, key: value})

            found[key] = golden_section(miss, fit.low, fit.high)
    return found


def misfit(study: Study, found: Mapping[str, float]) -> float:
    """Sum of squared logarithms of ours over published, over the expressions of all fits."""
    names = Names(study, Cases(study, fitted_settings(study, found)))
    pairs = {
        (f"fits.{key}.ours.{index}", text): published
        for key, fit in study.fits.items()
        for index, (text, published) in enumerate(zip(fit.ours, fit.published, strict=True))
    }
    errors = (log(evaluate(study, key, text, names) / published) for (key, text), published in pairs.items())
    return sum(error * error for error in errors)


def golden_section(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum between `low` and `high` (positive) is smallest, to 0.2 % of their ratio."""
    a, b = log(low), log(high)
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = function(exp(c)), function(exp(d))
    for _ in range(STEPS):
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - GOLDEN * (b - a)
            at_c = function(exp(c))
        else:
            a, c, at_c = c, d, at_d
            d = a + GOLDEN * (b - a)
            at_d = function(exp(d))
    return exp((a + b) / 2.0)
