"""How many plans per second does the bound take, and how long is a full search?"""

from __future__ import annotations

import simulator
from simulator.sweeps.bound import Bound
from simulator.sweeps.objectives import objective
from simulator.sweeps.price_book import PriceBook
from simulator.sweeps.processes import LocalPool, available_jobs
from simulator.sweeps.search import search
from simulator.sweeps.space import plans

SLACK = 8.0


def test_bound_of_all_plans_of_gpt3_175b_on_1024_gpus(benchmark) -> None:  # type: ignore[no-untyped-def]
    cluster, workload = simulator.load_cluster("selene", 1024), simulator.load_workload("gpt3-175b")
    table = plans(workload, cluster.num_gpus).table
    bound = Bound(PriceBook(cluster, workload))
    bound.of(table)  # prices
    benchmark.pedantic(bound.of, (table,), rounds=5)
    rate = len(table) / benchmark.stats.stats.min
    benchmark.extra_info.update(plans=len(table), plans_per_s=rate)
    assert rate > 100_000 / SLACK


def test_full_search_of_gpt3_175b_on_1024_gpus(benchmark) -> None:  # type: ignore[no-untyped-def]
    cluster, workload = simulator.load_cluster("selene", 1024), simulator.load_workload("gpt3-175b")
    goal = objective("step_time", cluster)
    jobs = available_jobs()

    def find():  # type: ignore[no-untyped-def]
        return search(cluster, workload, goal, pool=LocalPool(jobs) if jobs > 1 else None)

    result = benchmark.pedantic(find, rounds=1)
    proof = result.certificate
    benchmark.extra_info.update(plans=proof.plans, simulated=proof.simulated, pruned=proof.pruned, jobs=jobs)
    assert proof.plans >= 10_000
    assert benchmark.stats.stats.min < SLACK * 20.0
