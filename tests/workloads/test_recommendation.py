"""Recommendation models: counts, what is exchanged for tables that are dealt out, and where they may rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import load_cluster, simulate
from simulator.description import load
from simulator.description.faults import DescriptionError
from simulator.engine.timeline import Timeline
from simulator.program.builder import BuildOptions, Built, blueprint
from simulator.simulation import SimulationOptions, run
from simulator.workloads.modules.tables import Table, dealt
from simulator.workloads.workload import Workload
from tests.program.scenarios import FABRICS, LIBRARY, cluster, software

NIC, SAMPLES, WIDTH, TABLES, LOOKUPS = 0.9, 64, 32, 8, 20


def job(nodes: int, **plan: Any) -> Workload:
    model = {
        "family": "dlrm",
        "name": "small",
        "dense_features": 13,
        "width": WIDTH,
        "bottom": [64, WIDTH],
        "top": [64, 1],
        "tables": [{"rows": 100_000, "count": TABLES, "lookups": LOOKUPS, "skew": 0.0}],
    }
    described = {
        "name": "clicks",
        "model": model,
        "global_batch": SAMPLES * nodes,
        "sequence_length": 1,
        "precision": "bf16",
        "plan": {"micro_batch": SAMPLES, "ep": nodes, "optimizer": "sgd", **plan},
    }
    return Workload.model_validate(described)


def step(nodes: int, options: SimulationOptions = SimulationOptions(), **plan: Any) -> tuple[Built, Timeline]:
    fabric = plan.pop("fabric", None)
    machine, workload = cluster(nodes, 1, 1, fabric), job(nodes, **plan)
    assert workload.faults_on(nodes) == []
    return run(blueprint(machine, workload, software(), LIBRARY, options.build), options)


def moved(found: tuple[Built, Timeline], kind: str) -> float:
    """Units used of one link of the kind."""
    built, timeline = found
    return next(
        use
        for use, resource in zip(timeline.use.tolist(), built.program.resources, strict=True)
        if resource.kind == kind
    )


def test_parameters_are_the_rows_and_the_perceptrons() -> None:
    """187,767,399 rows of 128 of the terabyte logs, as the MLPerf reference has them."""
    model = load("model", "dlrm-mlperf")
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    pairs = 27 * 26 // 2 + 128
    top = pairs * 1024 + 1024 + 1024**2 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert model.num_parameters == 187_767_399 * 128 + bottom + top


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.integers(1, 64))
def test_every_table_is_dealt_once(rows: list[int], ranks: int) -> None:
    tables = tuple(Table(count, 64, 1, 1.0) for count in rows)
    hands = dealt(tables, ranks)
    assert len(hands) == ranks
    assert sum(piece.parameters for hand in hands for piece in hand) == sum(t.parameters for t in tables)
    assert all(hand for hand in hands)


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_pooled_rows_and_their_gradients_go_to_all_others(nodes: int) -> None:
    """(n-1)/n of the indices once and of the sums twice; dense gradients around the ring; tables not at all."""
    found = step(nodes)
    sums, indices = SAMPLES * TABLES * WIDTH * 2.0, SAMPLES * TABLES * LOOKUPS * 8.0
    dense = found[0].setting.content[0]
    reduced = sum(content.whole.parameters.total for content in dense) * 4.0
    expected = (nodes - 1) / nodes * (2 * sums + indices + 2 * reduced)
    assert moved(found, "nic_out") * NIC == pytest.approx(expected, rel=1e-9)
    assert reduced < 1e6


def test_sums_cross_the_host_link_where_memory_adds_up() -> None:
    """Link bytes shrink by the pooling factor (Kwon et al. 2019); memory reads the rows all the same."""
    host, near = step(4, table_memory="host"), step(4, table_memory="near_memory")
    network = moved(host, "nic_in") * NIC  # which also crosses the host link
    rows = SAMPLES * TABLES * LOOKUPS * WIDTH * 2.0  # of 4 x 64 samples, 2 of 8 tables
    assert moved(host, "host_in") == pytest.approx(rows / 0.83 + network / NIC, rel=0.02)
    assert moved(near, "host_in") == pytest.approx(rows / LOOKUPS / 0.83 + network / NIC, rel=0.02)
    assert moved(near, "dram") == pytest.approx(3 * rows / 0.8, rel=1e-9)


@pytest.mark.parametrize("memory", ["hbm", "host", "near_memory"])
def test_tables_rest_where_the_plan_says(memory: str) -> None:
    answer = simulate(
        load_cluster("hgx-h100-cluster", gpus=16),
        load("workload", "dlrm-mlperf", {"plan.table_memory": memory}),
    )
    tables = 187_767_399 * 128 * 4.0  # an fp32 copy beside 16-bit rows ...
    if memory == "hbm":
        assert answer.memory.peak_bytes > (tables + tables / 2) / 16  # ... of those on the fullest GPU
        assert answer.memory.host.peak_bytes == 0.0
    else:
        assert answer.memory.peak_bytes < 3e9
        assert answer.memory.host.peak_bytes > (tables + tables / 2) / 2
        assert answer.breakdown_s["offload"] > 0.0
    assert answer.breakdown_s["ep"] > 0.0
    assert answer.hfu == pytest.approx(answer.mfu, rel=1e-9)
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9)


def test_a_table_on_every_gpu_does_not_fit() -> None:
    whole = {"plan.ep": 1, "plan.synchronisation": {"sparse": "gathered"}}
    answer = simulate(load_cluster("hgx-h100-cluster", gpus=16), load("workload", "dlrm-mlperf", whole))
    assert not answer.memory.fits
    assert answer.memory.shortfall_bytes > 40e9


@pytest.mark.parametrize("memory", ["hbm", "host", "near_memory"])
@pytest.mark.parametrize("fabric", [FABRICS[0], FABRICS[1]])
def test_folded_equals_unfolded(memory: str, fabric: Any) -> None:
    times = [
        step(4, SimulationOptions(build=BuildOptions(fold=fold)), table_memory=memory, fabric=dict(fabric))[
            1
        ].makespan
        for fold in (True, False)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_exchange_hides_behind_the_dense_input() -> None:
    """Until the bottom perceptron is done nobody needs the sums."""
    labels = [op.label for op in job(4).model.layers()[0].forward(job(4).shard(frozenset(), None))]
    waits = [op for op in job(4).model.layers()[0].forward(job(4).shard(frozenset(), None)) if op.waits_for]
    assert labels.index("tables.to_samples") < labels.index("bottom_0.forward")
    assert [op.label for op in waits] == ["interaction.forward"]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"tp": 2}, "perceptrons stand whole"),
        ({"table_memory": "host", "synchronisation": {"sparse": "gathered"}}, "are updated where they are"),
        (
            {"ep": 4, "synchronisation": {"sparse": "gathered"}},
            "ep 4 does not go with servers or sparse gradients",
        ),
    ],
)
def test_what_cannot_be_is_refused(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        job(4, **plan)


@pytest.mark.parametrize("plan", [{"ep": 2}, {"ep": 1, "table_memory": "host"}])
def test_tables_are_dealt_over_all_replicas_or_stand_on_each(plan: dict[str, Any]) -> None:
    faults = job(4, **plan).faults_on(4)
    assert any("tables are dealt out over all replicas (dp 4)" in message for _, message in faults)


def test_search_refuses_tables_off_the_gpu() -> None:
    from simulator.sweeps.objectives import objective
    from simulator.sweeps.search import search

    machine = load_cluster("hgx-h100-cluster", gpus=16)
    with pytest.raises(DescriptionError, match="have no lower bound"):
        search(
            machine,
            load("workload", "dlrm-mlperf", {"plan.table_memory": "host"}),
            objective("step_time", machine),
        )


def test_search_deals_tables_over_replicas_and_takes_large_batches() -> None:
    from simulator.sweeps.space import plans

    table = plans(job(4), 4).table
    found = set(
        zip(table["ep"].tolist(), table["micro_batch"].tolist(), table.data_parallel.tolist(), strict=True)
    )
    assert {(4, SAMPLES, 4), (1, SAMPLES, 4)} <= found
    assert all(ep in (1, dp) for ep, _, dp in found)
