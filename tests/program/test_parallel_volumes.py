"""Bytes that the executed program puts on links equal the closed forms of each kind of parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.engine import execute
from simulator.program.builder import build
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
    expected = 3 * 4 * 3 / 4 * rows * WIDTH * 2.0 + 2 * 3 / 4 * dense
    assert float(timeline.use[nic]) * RATE == pytest.approx(expected, rel=1e-9)
    assert experts == 3 * 8 * 3 * WIDTH * 128 / 4  # held by one rank: nobody to reduce with
