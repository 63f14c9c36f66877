"""Predictions of the random small scenarios of `tests.program`, and of small parts of the catalogue."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import simulator
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, build
from simulator.results.predict import predict
from simulator.results.prediction import Prediction
from simulator.simulation import SimulationOptions, simulate
from tests.program.scenarios import LIBRARY

META = {"cluster": "test", "workload": "test", "plan": {}, "engine": {}}


def prediction_of(scenario: tuple[Any, Any, Any], trace: bool = False, **options: bool) -> Prediction:
    """The prediction of (cluster, workload, software)."""
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY, BuildOptions(**options))
    return predict(machine, job, built, execute(built.program, trace=trace), META)


@lru_cache(maxsize=16)
def from_catalogue(gpus: int = 64, trace: bool = False, periodic: bool = True, **plan: Any) -> Prediction:
    """GPT-3 175B with 48 samples on part of Selene; keywords go to the plan."""
    settings = {f"plan.{key}": value for key, value in plan.items()}
    return simulate(
        simulator.load_cluster("selene", gpus=gpus),
        simulator.load_workload("gpt3-175b", {"global_batch": 48, **settings}),
        SimulationOptions(trace=trace, periodic=periodic),
    )
