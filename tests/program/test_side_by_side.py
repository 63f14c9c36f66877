"""Exchanges of tokens behind computation: of another micro-batch, or of the shared expert."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.engine.engine import execute
from simulator.program.builder import Built, build
from simulator.program.sharding import twin_bytes
from simulator.workloads.operators import Collective
from tests.program.scenarios import LIBRARY, cluster, software, workload

SLOW = LIBRARY.model_copy(update={"gpu_share": 0.0})
"""Exchanges that take nothing of the GPU."""


def ran(count: int = 8, layers: int = 4, **plan: Any) -> tuple[Built, Any]:
    plan = {"family": "moe", "ep": 4, "zero": 0, **plan}
    job = workload(global_batch=4 * count, layers=layers, **plan)
    built = build(cluster(4 * plan.get("pp", 1), 1, 1), job, software(), SLOW)
    return built, execute(built.program)


def exchanged(built: Built) -> float:
    """Seconds of one micro-batch's exchanges on one stage, alone."""
    pricing = built.communicators
    operations = built.setting.operations(0)
    sent = [
        (one.what, times)
        for one, times in operations
        if isinstance(one.what, Collective) and one.what.op == "all_to_all"
    ]
    transfers = ((pricing.transfer(what.axis, what.op, what.size, 0), times) for what, times in sent)
    return sum(times * transfer.seconds for transfer, times in transfers if transfer is not None)


@pytest.mark.parametrize("count", [2, 5])
def test_pairs_hide_what_fits_behind_the_computation_of_the_other(count: int) -> None:
    """Every micro-batch's exchanges are exposed alone; side by side, at most as long as they outlast the kernels."""
    built, serial = ran(count)
    _, beside = ran(count, overlap={"ep": True})
    moved = exchanged(built)
    busy = float(max(serial.lane_busy)) - count * moved
    assert serial.makespan >= count * moved
    assert beside.makespan >= max(count * moved, busy) * (1 - 1e-9)
    hidden = serial.makespan - beside.makespan
    assert 0.5 * (count - 1) * min(moved, busy / count) < hidden <= (count - 1) * min(moved, busy / count) * 2


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"pp": 2, "vpp": 2},
        {"pp": 2, "vpp": 2, "schedule": "dualpipe"},
        {"pp": 2, "vpp": 2, "schedule": "dualpipe-v"},
    ],
)
def test_side_by_side_moves_the_same_bytes_and_multiplies_the_same_numbers(plan: dict[str, Any]) -> None:
    (one, serial), (other, beside) = ran(**plan), ran(**plan, overlap={"ep": True})
    flops = [sum(p.flops for task in b.program.tasks for p in task.phases) for b in (one, other)]
    assert flops[0] == pytest.approx(flops[1], rel=1e-9)
    assert serial.use == pytest.approx(beside.use, rel=1e-9)
    assert beside.makespan <= serial.makespan * (1 + 1e-9)


@pytest.mark.parametrize("sms", [27, 54])
def test_products_keep_off_the_sms_that_exchanges_hold(sms: int) -> None:
    """27 of the test GPU's 108 SMs are what a library that takes a quarter of the GPU takes."""
    plan = {"family": "moe", "ep": 4, "overlap": {"ep": True, "dp_gradients": False}}
    held, taken = (
        execute(
            build(
                cluster(4, 1, 1),
                workload(global_batch=16, experts=experts, **plan),
                software(),
                LIBRARY.model_copy(update={"gpu_share": share}),
            ).program
        ).makespan
        for experts, share in (({"exchange_sms": sms}, 0.0), ({}, sms / 108))
    )
    assert held == pytest.approx(taken, rel=1e-9)


def test_a_shared_expert_hides_exchanges_and_changes_nothing_else() -> None:
    (one, serial), (other, beside) = ran(), ran(overlap={"shared_expert": True})
    assert beside.makespan < serial.makespan
    flops = [sum(p.flops for task in b.program.tasks for p in task.phases) for b in (one, other)]
    assert flops[0] == pytest.approx(flops[1], rel=1e-9)
    assert serial.use == pytest.approx(beside.use, rel=1e-9)
    layer = one.setting.content[0][0].layers[2]
    plain, moved = ([o.label for o in layer.layer.forward(b.setting.shard)] for b in (one, other))
    assert sorted(plain) == sorted(moved)
    start = moved.index("dispatch.gates")  # the rows before, then these
    assert moved[start + 1].startswith("shared_gate_up")
    alone = replace(other.setting.shard, ep=1)  # nothing is exchanged, and nothing gets lost
    assert layer.layer.forward(alone) == layer.layer.forward(replace(alone, shared_beside=False))


def test_both_copies_of_dualpipe_add_up_their_gradients() -> None:
    """Once a step, each stage with the one that holds the same parts: all that data parallelism has summed."""
    built, _ = ran(pp=2, vpp=2, schedule="dualpipe")
    tasks = [t for t in built.program.tasks if t.label == "reduce copies"]
    held = built.setting.content[0]
    gradients = 4.0 * sum(c.whole.parameters.total for c in held)
    assert twin_bytes(built.setting, 0) == twin_bytes(built.setting, 1) == gradients
    assert len(tasks) == 1
    assert twin_bytes(ran(pp=2, vpp=2)[0].setting, 0) == 0.0


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"pp": 2, "overlap": {"ep": True}}, "needs a pipeline with vpp > 1 or schedule: dualpipe"),
        ({"overlap": {"ep": True}, "zero": 3}, "zero 3 shares out layer by layer"),
        ({"overlap": {"ep": True, "shared_expert": True}}, "give one of them"),
        ({"pp": 3, "vpp": 2, "schedule": "dualpipe"}, "needs an even number of stages"),
        ({"pp": 2, "schedule": "dualpipe"}, "needs 2 chunks per stage"),
    ],
)
def test_what_cannot_run_side_by_side_is_refused_with_the_reason(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload(family="moe", layers=6, **plan)
