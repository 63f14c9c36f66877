"""A chain that was told again for another rank class is, bit for bit, the one that this class would have priced."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import simulator
from simulator.program import layer_chains
from simulator.program.builder import Blueprint, BuildOptions, blueprint
from simulator.program.layer_chains import LayerChains
from simulator.simulation import assemble
from tests.program.scenarios import LIBRARY
from tests.program.test_folding_is_exact import scenarios

DIRECTIONS = ("forward", "backward", "input gradient", "weight gradient")


def compare(plan: Blueprint) -> int:
    """Checks every layer on every class; returns how many classes there are."""
    together = LayerChains()
    for pricing, stage in zip(plan.pricings, plan.stage_of_class, strict=True):
        setting = plan.settings[stage]
        setting.num_scheduled = setting.num_micro_batches
        for placed in dict.fromkeys(one for content in setting.content[stage] for one in content.layers):
            for direction in DIRECTIONS:
                told = together.of(placed, direction, pricing)
                priced = LayerChains().of(placed, direction, pricing)
                assert vars(told) == vars(priced)
    return len(plan.pricings)


@pytest.mark.parametrize("fold", [True, False])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenario=scenarios())
def test_chains_of_random_scenarios(fold: bool, scenario: tuple[Any, Any, Any]) -> None:
    compare(blueprint(*scenario, LIBRARY, BuildOptions(fold=fold)))


@pytest.mark.parametrize(
    ("cluster", "gpus", "workload"),
    [("h100-16k", 1024, "llama3-405b"), ("h100-16k", 1024, "deepseek-v3")],
)
def test_chains_of_published_models(
    cluster: str, gpus: int, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced: list[object] = []
    chain_of = layer_chains.chain_of
    monkeypatch.setattr(layer_chains, "chain_of", lambda *given: priced.append(0) or chain_of(*given))
    machine, job = simulator.load_cluster(cluster, gpus), simulator.load_workload(workload)
    plan = assemble(machine, job, BuildOptions())
    assert compare(plan) == job.plan.pp
    alone = len(priced)
    priced.clear()
    plan.build()
    assert len(priced) < 0.5 * alone  # most are told again
