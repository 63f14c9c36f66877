"""Bytes that the executed program puts on links equal the closed forms of each kind of parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, build
from tests.program.scenarios import LIBRARY, cluster, software, workload

RATE = 0.9  # achieved fraction of a NIC: links are drawn on by bytes over it
LAYERS, TOKENS, WIDTH = 4, 256, 256


def network_bytes(num_nodes: int, num_gpus: int, **plan: Any) -> tuple[float, float]:
    """(bytes out of one NIC, bytes of all gradients of one rank's parameters) of a step of one sample."""
    job = workload(global_batch=1, zero=0, **plan)
    built = build(cluster(num_nodes, num_gpus, num_gpus), job, software(), LIBRARY)
    timeline = execute(built.program)
    nics = [i for i, r in enumerate(built.program.resources) if r.kind == "nic_out"]
    gradients = 4.0 * sum(c.whole.dense for stage in built.setting.content for c in stage)
    return sum(float(timeline.use[nic]) for nic in nics) / len(nics) * RATE, gradients


def test_a_ring_over_nodes_moves_keys_and_values_three_times_per_layer() -> None:
    """Forward once, backward once more and their gradients once, each over 3 of 4 hops."""
    block = 2.0 * TOKENS / 4 * 2 * WIDTH
    moved, gradients = network_bytes(4, 1, cp=4, context_exchange="ring")
    assert moved == pytest.approx(LAYERS * 3 * 3 * block + 2 * 3 / 4 * gradients, rel=1e-9)


def test_gathering_over_nodes_moves_as_much_as_the_ring() -> None:
    ring, _ = network_bytes(4, 1, cp=4, context_exchange="ring")
    gathered, _ = network_bytes(4, 1, cp=4, context_exchange="all_gather")
    assert gathered == pytest.approx(ring, rel=1e-9)


def test_heads_for_tokens_over_nodes_moves_a_quarter_of_four_tensors_to_each_other_rank() -> None:
    tensor = 2.0 * TOKENS / 4 * WIDTH
    moved, gradients = network_bytes(4, 1, cp=4, context_exchange="all_to_all")
    assert moved == pytest.approx(LAYERS * 2 * 4 * 3 / 4 * tensor + 2 * 3 / 4 * gradients, rel=1e-9)


def test_usp_exchanges_heads_inside_nodes_and_only_its_ring_leaves_them() -> None:
    """2 nodes x 2 GPUs: each rank's block is that of its half of the heads and half of the sequence."""
    block = 2.0 * TOKENS / 4 * 2 * WIDTH
    plan: dict[str, Any] = {"cp": 4, "context_exchange": "usp", "ulysses": 2}
    moved, gradients = network_bytes(2, 2, **plan)
    reduction = 2 * 3 / 4 * gradients / 2  # a ring over two nodes leaves each through both NICs
    assert moved == pytest.approx(LAYERS * 3 * block + reduction, rel=1e-9)


@pytest.mark.parametrize("load", ["balanced", "zipf"])
def test_experts_on_other_nodes_are_reached_four_times_per_layer(load: str) -> None:
    """Dispatch and combine, forward and backward: 3/4 of the routed rows leave the rank each time."""
    from simulator.workloads.routing import Routing

    model = {"family": "moe", "ep": 4, "experts": {"load": load}}
    job = workload(global_batch=4, zero=0, **model)
    built = build(cluster(4, 1, 1), job, software(), LIBRARY)
    timeline = execute(built.program)
    (nic,) = [i for i, r in enumerate(built.program.resources) if r.kind == "nic_out"]
    full, _ = Routing(load=load).fullest(8, 4, 2, 4 * 2 * TOKENS)
    rows = -(-2 * TOKENS * full // 1)
    dense = 4.0 * sum(c.whole.dense for stage in built.setting.content for c in stage)
    experts = sum(c.whole.experts for stage in built.setting.content for c in stage)
    counts = 3 * 3 / 4 * (4 * 8 * 8.0)  # of tokens for each expert, from every rank, forward
    gates = 3 * 2 * 3 / 4 * rows * 4.0  # with the rows, and their gradients
    expected = 3 * 4 * 3 / 4 * rows * WIDTH * 2.0 + 2 * 3 / 4 * dense + counts + gates
    assert float(timeline.use[nic]) * RATE == pytest.approx(expected, rel=1e-9)
    assert experts == 3 * 8 * 3 * WIDTH * 128 / 4  # held by one rank: nobody to reduce with


@pytest.mark.parametrize("x, y, z", [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 1, 2), (2, 2, 1), (1, 2, 2)])
def test_a_tensor_grid_over_nodes_moves_the_bytes_of_its_layers(x: int, y: int, z: int) -> None:
    """Every rank a node of its own: what leaves a NIC is what the rank's rings send."""
    job = workload(global_batch=4, micro_batch=4, zero=0, tp_x=x, tp=y, tp_z=z)
    assert job.faults_on(4) == []
    built = build(cluster(4, 1, 1), job, software(overlap={**OVERLAP, "tp": False}), LIBRARY)
    timeline = execute(built.program)
    nics = [i for i, r in enumerate(built.program.resources) if r.kind == "nic_out"]
    expected, ranks = 0.0, {"tp_x": x, "tp": y, "tp_z": z}
    rounds = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    for placed in built.setting.content[0][0].layers:
        for operation in (*placed.layer.forward(placed.shard), *placed.layer.backward(placed.shard)):
            if operation.is_collective:
                what, n = operation.what, ranks[operation.what.axis]
                expected += rounds[what.op] * (n - 1) / n * what.size
    moved = sum(float(timeline.use[nic]) for nic in nics) / len(nics) * RATE
    assert moved == pytest.approx(expected, rel=1e-9)


OVERLAP = {"dp_gradients": True, "dp_parameters": False, "tp": True, "pp": True}


@pytest.mark.parametrize("x, y, z", [(2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2)])
def test_folded_and_unfolded_tensor_grids_agree(x: int, y: int, z: int) -> None:
    job = workload(global_batch=16, micro_batch=4, zero=1, tp_x=x, tp=y, tp_z=z)
    steps = [
        execute(build(cluster(4, 4, 2), job, software(), LIBRARY, BuildOptions(fold=fold)).program).makespan
        for fold in (True, False)
    ]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9)
