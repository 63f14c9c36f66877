"""A search finds what simulating everything finds, proves it, and does not depend on the number of processes."""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any

import pytest

from simulator.description.faults import KeyFaults
from simulator.hardware.cluster import Cluster
from simulator.report.search_text import search_text
from simulator.simulation import simulate
from simulator.sweeps.bound import Bound, Bounds
from simulator.sweeps.constraint_bounds import limits
from simulator.sweeps.objectives import Constraint, objective, value_of
from simulator.sweeps.price_book import PriceBook
from simulator.sweeps.processes import LocalPool
from simulator.sweeps.search import SearchResult, search
from simulator.sweeps.space import Space, plans
from simulator.workloads.workload import Workload
from tests.program.scenarios import node, workload

SPACE = Space(
    {"micro_batch": (1,), "recompute": ("none", "full"), "tp": (1, 2, 4), "cp": (1, 2), "zero": (0, 1)}
)


def machine(capacity: float = 80e9) -> Cluster:
    power = {"idle": 60.0, "max": 400.0}
    memory = {"capacity": capacity, "bandwidth": 2e12}
    described = node(4, 4, power=power, price=15000.0, memory=memory) | {"power": 1000.0}
    fabric = {
        "kind": "leaf_spine",
        "nodes_per_leaf": 1,
        "num_spines": 2,
        "oversubscription": 2.0,
        "hop_latency": 5e-7,
    }
    return Cluster.model_validate({"name": "small", "node": described, "num_nodes": 2, "fabric": fabric})


def job(**changes: Any) -> Workload:
    return workload(
        layers=4, hidden=2048, heads=16, vocab=32000, global_batch=32, sequence_length=1024, **changes
    )


def everything(cluster: Cluster, work: Workload) -> list[Any]:
    known = plans(work, cluster.num_gpus, SPACE)
    found = [simulate(cluster, known.table.job(index)) for index in range(len(known.table))]
    return [prediction for prediction in found if prediction.memory.fits]


@pytest.fixture(scope="module")
def exhaustive() -> list[Any]:
    return everything(machine(), job())


@pytest.mark.long
@pytest.mark.parametrize("name", ["step_time", "tokens_per_dollar", "tokens_per_joule", "memory_headroom"])
def test_search_finds_what_simulating_all_plans_finds(name: str, exhaustive: list[Any]) -> None:
    goal = objective(name, machine())
    result = search(machine(), job(), goal, space=SPACE, top=3)
    wanted = sorted(goal.value(prediction) for prediction in exhaustive)[:3]
    assert [goal.value(prediction) for prediction in result.best] == pytest.approx(wanted, rel=1e-12)
    assert result.certificate.simulated < len(exhaustive)


@pytest.mark.long
def test_search_keeps_to_constraints(exhaustive: list[Any]) -> None:
    limit = sorted(prediction.memory.peak_bytes for prediction in exhaustive)[len(exhaustive) // 10]
    result = search(
        machine(),
        job(),
        objective("step_time", machine()),
        space=SPACE,
        constraints=[Constraint("memory.peak_bytes", "<=", limit)],
    )
    allowed = [one.step_time_s for one in exhaustive if one.memory.peak_bytes <= limit]
    assert result.best[0].step_time_s == pytest.approx(min(allowed), rel=1e-12)


def same(one: SearchResult, other: SearchResult) -> bool:
    return one.certificate == other.certificate and [p.step_time_s for p in one.best] == [
        p.step_time_s for p in other.best
    ]


def test_certificate_accounts_for_every_plan_and_not_for_processes() -> None:
    space = Space({"tp": (1, 2), "pp": (1, 2), "micro_batch": (1,), "recompute": ("none",)})
    goal = objective("step_time", machine())
    alone = search(machine(), job(), goal, space=space, top=2)
    proof = alone.certificate
    assert proof.plans == sum(proof.infeasible.values()) + proof.pruned + proof.simulated
    assert proof.best_pruned_bound is not None and proof.best_pruned_bound >= alone.best[-1].step_time_s
    assert same(alone, search(machine(), job(), goal, space=space, top=2, pool=LocalPool(3)))


def test_a_search_that_stops_early_says_how_many_plans_might_be_better() -> None:
    space = Space({"tp": (1, 2), "pp": (1, 2), "micro_batch": (1,), "recompute": ("none",)})
    goal = objective("step_time", machine())
    whole = search(machine(), job(), goal, space=space, top=2)
    early = search(machine(), job(), goal, space=space, top=2, most=1)
    assert (whole.certificate.open, early.certificate.simulated) == (0, 1)
    assert early.certificate.open == early.certificate.pruned  # one is too few for a worst of two
    assert "Not proven" in search_text(early) and "Not proven" not in search_text(whole)


def test_what_does_not_fit_is_counted_not_simulated() -> None:
    result = search(
        machine(1e9), job(), objective("step_time", machine()), space=Space({"tp": (1,), "cp": (1,)})
    )
    assert result.best == ()
    assert result.certificate.infeasible["memory"] + sum(result.certificate.refused.values()) > 0
    assert result.certificate.simulated == sum(result.certificate.refused.values())


def test_json_object_has_the_keys_of_the_design() -> None:
    result = search(
        machine(), job(), objective("step_time", machine()), space=Space({"tp": (2,), "pp": (1,), "cp": (1,)})
    )
    tree = result.to_dict()
    assert set(tree) >= {"best", "certificate", "wall_s"}
    assert set(tree["certificate"]) >= {"plans", "infeasible", "pruned", "simulated", "best_pruned_bound_s"}


def test_plans_that_fit_by_less_than_memory_errs_are_marked_and_told_apart_by_a_constraint() -> None:
    goal, one = (
        objective("step_time", machine()),
        Space({"tp": (2,), "pp": (1,), "cp": (1,), "micro_batch": (1,)}),
    )
    best = search(machine(), job(), goal, space=one).best[0]
    tight = machine(best.memory.peak_bytes * 1.02)
    marked = search_text(found := search(tight, job(), goal, space=one, top=1), width=200)
    assert found.best[0].memory.may_not_fit and not best.memory.may_not_fit
    assert "GiB ?" in marked and "?" not in search_text(search(machine(), job(), goal, space=one))
    advice = marked.split("--constraint '")[1].split("'")[0]
    left = search(tight, job(), goal, space=one, constraints=[Constraint.parse(advice)])
    assert not any(plan.memory.may_not_fit for plan in left.best)


SMALL = Space({"tp": (1, 2), "pp": (1, 2), "cp": (1,), "zero": (0, 1), "micro_batch": (1,)})


@pytest.mark.parametrize(
    "unmeetable",
    ["mfu>=0.99", "step_time_s<=1 ms", "memory.peak_bytes<1 GiB", "energy_j<=1", "tokens_per_s>1e9"],
)
def test_what_no_bound_meets_is_refused_without_simulating(unmeetable: str) -> None:
    constraint, goal = Constraint.parse(unmeetable), objective("step_time", machine())
    proof = search(machine(), job(), goal, space=SMALL, constraints=[constraint]).certificate
    assert (proof.simulated, proof.pruned) == (0, 0)
    assert proof.infeasible[str(constraint)] == len(plans(job(), machine().num_gpus, SMALL).table)
    assert proof.plans == sum(proof.infeasible.values())


def test_a_constraint_on_an_unknown_key_is_told_even_where_another_excludes_all_plans() -> None:
    constraints = [Constraint.parse("mfu>=0.99"), Constraint.parse("speed>=1")]
    with pytest.raises(KeyFaults, match="has no 'speed'"):
        search(machine(), job(), objective("step_time", machine()), space=SMALL, constraints=constraints)


@pytest.mark.parametrize(
    "key",
    [
        *("step_time_s", "mfu", "tflops_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s"),
        *("energy_j", "cost_usd", "memory.peak_bytes", "memory.peak_low_bytes", "memory.peak_high_bytes"),
    ],
)
def test_bounds_exclude_no_plan_that_keeps_to_a_constraint(key: str) -> None:
    least, most = (array.tolist() for array in limits(key, machine(), job(), small_bounds()))
    assert any(one > -inf for one in least) or any(one < inf for one in most)
    for low, high, prediction in zip(least, most, small_predictions(), strict=True):
        assert low <= value_of(prediction.to_dict(), key) <= high


@cache
def small_bounds() -> Bounds:
    table = plans(job(), machine().num_gpus, SMALL).table
    return Bound(PriceBook(machine(), job())).of(table)


@cache
def small_predictions() -> list[Any]:
    table = plans(job(), machine().num_gpus, SMALL).table
    return [simulate(machine(), table.job(index)) for index in range(len(table))]


@pytest.mark.parametrize(
    ("text", "message"),
    [("mfu", "needs the form"), ("mfu>=fast", "is no number"), ("plan.mfu>=1", "has no 'plan'")],
)
def test_wrong_constraints_are_told(text: str, message: str) -> None:
    with pytest.raises(KeyFaults, match=message):
        Constraint.parse(text).holds({"mfu": 0.5})


def test_an_objective_without_prices_is_refused() -> None:
    fabric = {"kind": "single_switch", "hop_latency": 5e-7}
    free = Cluster.model_validate({"name": "free", "node": node(2, 2), "num_nodes": 1, "fabric": fabric})
    with pytest.raises(KeyFaults, match="price"):
        objective("tokens_per_dollar", free)
