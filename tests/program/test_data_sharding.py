"""Hybrid sharding, second copies, fractions and kept parameters move and keep the bytes of their closed forms."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from simulator.costs.collectives import library_for
from simulator.costs.memory import stage_state
from simulator.costs.software import load_software
from simulator.engine.engine import execute
from simulator.program.builder import Built, build
from simulator.ranks.grid import Grid
from tests.program.scenarios import LIBRARY, cluster, software, workload

NIC, SCALE_UP = 0.9, 0.8  # achieved fractions: links are drawn on by bytes over them
LAYERS = 4  # and an embedding and a head, each a unit


def run(
    batches: int = 1, nodes: int = 2, gpus: int = 4, **zero3: Any
) -> tuple[Built, dict[str, float], float]:
    """(program, bytes out of one link by kind, step seconds) of `batches` micro-batches on nodes x gpus ranks."""
    job = workload(layers=LAYERS, global_batch=batches * nodes * gpus, zero=3, zero3=zero3)
    assert job.faults_on(nodes * gpus) == []
    built = build(cluster(nodes, gpus, gpus), job, software(), LIBRARY)
    timeline = execute(built.program)
    moved: dict[str, float] = {}
    for resource, used in zip(built.program.resources, timeline.use.tolist(), strict=True):
        moved[resource.kind] = used * (NIC if resource.kind.startswith("nic") else SCALE_UP)
    return built, moved, timeline.makespan


def sizes(built: Built) -> list[int]:
    (content,) = built.setting.content[0]
    return [unit.parameters.total for unit in content.units]


def test_shards_stay_inside_nodes_and_their_sums_cross() -> None:
    """HSDP, 2 nodes of 4: gathers and reduce-scatters inside, an all-reduce of a quarter of the gradients across."""
    built, moved, _ = run(shard_group=4)
    counts = sizes(built)
    gathered = 2 * sum(counts) - counts[-1]  # the head stays from forward to backward
    inside = 3 / 4 * (2.0 * gathered + 4.0 * sum(counts))
    across = 2 * 1 / 2 * 4.0 * sum(counts) / 4
    assert moved["scale_up_out"] == pytest.approx(inside, rel=1e-9)
    assert moved["nic_out"] == pytest.approx(across, rel=1e-9)


@pytest.mark.parametrize("batches", [1, 3])
def test_copies_are_summed_after_each_micro_batch_or_once(batches: int) -> None:
    each, last = run(batches, shard_group=4), run(batches, shard_group=4, sum_copies_last=True)
    assert each[1]["nic_out"] == pytest.approx(batches * last[1]["nic_out"], rel=1e-9)
    assert each[1]["scale_up_out"] == pytest.approx(last[1]["scale_up_out"], rel=1e-9)


def test_one_group_of_all_ranks_is_plain_zero_3() -> None:
    plain, whole = run(), run(shard_group=8)
    assert whole[2] == pytest.approx(plain[2], rel=1e-12)
    assert whole[1] == pytest.approx(plain[1], rel=1e-12)


def test_groups_of_one_rank_gather_nothing_and_sum_like_plain_data_parallelism() -> None:
    built, moved, _ = run(shard_group=1)
    assert moved["nic_out"] == pytest.approx(2 * 7 / 8 * 4.0 * sum(sizes(built)) / 4, rel=1e-9)


def test_a_second_copy_inside_the_node_halves_what_gathers_send_across() -> None:
    """hpZ: forward gathers over 8 ranks, backward over the 4 of a node."""
    built, moved, _ = run(secondary_group=4)
    counts = sizes(built)
    # a ring over two nodes leaves each through all four NICs: a quarter of 7/8 each
    across = 7 / 8 / 4 * (2.0 * sum(counts) + 4.0 * sum(counts))
    inside = 3 / 4 * (7 / 8 * (2.0 + 4.0) * sum(counts) + 2.0 * (sum(counts) - counts[-1]))
    assert moved["nic_out"] == pytest.approx(across, rel=1e-9)
    assert moved["scale_up_out"] == pytest.approx(inside, rel=1e-9)


@pytest.mark.parametrize("fraction", [0.0, 1 / 3, 2 / 3, 1.0])
def test_a_fraction_is_gathered_and_scattered_and_the_rest_summed_once(fraction: float) -> None:
    built, moved, _ = run(batches=2, nodes=8, gpus=1, fraction=fraction)
    counts = sizes(built)
    gathered = 2 * (2 * sum(counts) - counts[-1])
    expected = fraction * 7 / 8 * (2.0 * gathered + 2 * 4.0 * sum(counts))
    expected += (1 - fraction) * 2 * 7 / 8 * 4.0 * sum(counts)
    assert moved["nic_out"] == pytest.approx(expected, rel=1e-9)


@given(
    fraction=st.floats(0.0, 1.0),
    group=st.sampled_from([1, 2, 4, 8]),
)
@settings(max_examples=30, deadline=None)
def test_state_is_that_of_the_replicated_part_and_a_share_of_the_rest(fraction: float, group: int) -> None:
    zero3 = {"fraction": fraction, "shard_group": group}
    job = workload(layers=LAYERS, global_batch=8, zero=3, zero3=zero3, parameter_dtype="bf16")
    plain = job.model_copy(update={"plan": job.plan.model_copy(update={"zero": 0})})
    shard = job.shard(frozenset(), "flash2")
    layers = job.model.layers()
    whole = stage_state(layers, plain, shard, 8)
    part = stage_state(layers, job, shard, 8)
    expected = whole.total * (1 - fraction + fraction / group)
    assert part.total == pytest.approx(expected, rel=1e-9)


def test_fractions_of_a_kind_of_layer_go_before_the_common_one() -> None:
    built, _, _ = run(fraction=1.0, fractions={"block": 0.0})
    gathered = [t for t in built.program.tasks if t.label == "gather parameters"]
    assert len(gathered) == 3  # the embedding twice, the head once


@pytest.mark.parametrize("batches", [1, 4])
def test_parameters_that_fit_the_budget_are_gathered_once_in_a_step(batches: int) -> None:
    built, _, _ = run(batches, unsharded=1e9)
    units = sizes(built)
    labels = [t.label for t in built.program.tasks]
    assert labels.count("gather parameters") == len(units)
    two = 2.0 * sum(units[:2])
    built, _, _ = run(batches, unsharded=two)
    labels = [t.label for t in built.program.tasks]
    left = len(units) - 2
    assert labels.count("gather parameters") == 2 + batches * (2 * left - 1)


def test_kept_parameters_are_freed_at_the_end_of_the_step() -> None:
    built, _, _ = run(3, unsharded=3e6)
    changes = [c for t in built.program.tasks for c in (*t.at_start, *t.at_end)]
    assert sum(c.amount for c in changes if c.kind == "gathered parameters") == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_of_at_most_two_units_are_whole_and_none_is_left(zero: int) -> None:
    job = workload(layers=LAYERS, global_batch=24, zero=zero)
    built = build(cluster(2, 4, 4), job, software(), LIBRARY)
    units = sorted(sizes(built))
    levels = held(built, "whole gradients")
    # bf16 as backward makes them, fp32 as they are summed
    assert 6.0 * units[-1] <= max(levels) <= 6.0 * (units[-1] + units[-2])
    assert levels[-1] == pytest.approx(0.0, abs=1.0)


def test_a_buffer_is_there_while_its_gather_runs() -> None:
    job = workload(layers=LAYERS, global_batch=8, zero=3, zero3={"prefetch": 0})
    profile = software(memory={"context": 0.0, "fragmentation": 0.0, "gather_copies": 1})
    built = build(cluster(2, 4, 4), job, profile, LIBRARY)
    levels = held(built, "gathered parameters")
    assert max(levels) == pytest.approx(2 * 2.0 * max(sizes(built)))
    assert levels[-1] == pytest.approx(0.0, abs=1.0)


def test_parameters_are_copied_out_of_every_gather_and_gradients_into_every_reduction() -> None:
    """2 + 2 bytes per parameter and gather (the last unit stays gathered for backward), 2 + 4 per gradient."""
    job = workload(layers=LAYERS, global_batch=8, zero=3)
    copying, plain = (
        build(cluster(2, 4, 4), job, software(zero3_copies=copies), LIBRARY) for copies in (True, False)
    )
    units = sizes(plain)
    moved = Counter[str]()
    for phase in (phase for task in copying.program.tasks for phase in task.phases):
        if phase.label.startswith("copy "):
            moved[phase.label] += phase.hbm_bytes
    assert moved["copy parameters"] == pytest.approx(4.0 * (2 * sum(units) - units[-1]))
    assert moved["copy gradients"] == pytest.approx(6.0 * sum(units))
    assert execute(copying.program).makespan > execute(plain.program).makespan


@pytest.mark.parametrize("flat", [False, True])
def test_fp32_copies_of_gradients_live_during_the_update_or_always(flat: bool) -> None:
    job = workload(layers=LAYERS, global_batch=8, zero=1, gradient_dtype="bf16")
    profile = software(memory={"context": 0.0, "fragmentation": 0.0, "flat_update": flat})
    built = build(cluster(2, 4, 4), job, profile, LIBRARY)
    (content,) = built.setting.content[0]
    copies = 4.0 * content.whole.parameters.total / 8
    assert (copies in held(built, "transient")) is not flat
    assert held(built, "gradient copies") == ([copies] if flat else [])


def held(built: Built, kind: str) -> list[float]:
    """Bytes of the kind on the first rank class after each of its changes."""
    changes = (change for _, change in execute(built.program).memory_changes())
    return list(accumulate(c.amount for c in changes if c.kind == kind and c.rank_class == 0))


def test_narrow_gathers_send_half() -> None:
    wide, narrow = run(nodes=8, gpus=1), run(nodes=8, gpus=1, gather_dtype="fp8")
    counts = sizes(wide[0])
    saved = 7 / 8 * (2 * sum(counts) - counts[-1])
    assert wide[1]["nic_out"] - narrow[1]["nic_out"] == pytest.approx(saved, rel=1e-9)


def test_a_longer_window_never_gathers_later() -> None:
    times = [run(2, nodes=8, gpus=1, prefetch=window)[2] for window in (0, 1, 2, 4)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(times))
    assert times[0] > times[-1]


def test_experts_of_a_shard_group_are_shared_out_over_the_ranks_that_hold_the_same() -> None:
    grid = Grid(dp=8, ep=2, shard=4)
    assert grid.groups("shard").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert grid.groups("replicate").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert grid.groups("eshard").tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert grid.groups("ereplicate").tolist() == [[0, 4], [2, 6], [1, 5], [3, 7]]


def test_a_host_that_prepares_gathers_and_reductions_adds_its_time_to_each() -> None:
    """Nothing overlaps: an all-gather per unit and direction (the head stays), a reduce-scatter per unit."""
    job = simulator.load_workload(
        "gpt-mini", {"plan.zero": 3, "plan.zero3.prefetch": 0, "plan.overlap.dp_gradients": False}
    )
    machine = simulator.load_cluster("minicluster", 4)
    library, profile = library_for(machine.nodes[0], machine.software), load_software("torch-gloo")
    seconds = []
    for overhead in (0.0, 1e-3):
        changed = profile.model_copy(update={"zero3_overhead": overhead})
        seconds.append(execute(build(machine, job, changed, library).program).makespan)
    units, micro_batches = 6, 2
    assert seconds[1] - seconds[0] == pytest.approx((3 * units - 1) * micro_batches * 1e-3, rel=1e-9)


@pytest.mark.parametrize("pp", [1, 2])
def test_zero_2_scatters_gradients_after_each_micro_batch_and_zero_1_after_the_last(pp: int) -> None:
    batches, ranks = 3, 8 // pp
    sent: dict[int, float] = {}
    kept: dict[int, float] = {}
    for zero in (1, 2):
        job = workload(layers=LAYERS, global_batch=batches * ranks, zero=zero, pp=pp)
        assert job.faults_on(8) == []
        built = build(cluster(8, 1, 8), job, software(), LIBRARY)
        used = zip(built.program.resources, execute(built.program).use.tolist(), strict=True)
        sent[zero] = sum(amount * NIC for resource, amount in used if resource.kind == "nic_out")
        stages = [sum(chunk.whole.parameters.total for chunk in chunks) for chunks in built.setting.content]
        kept[zero] = sum(c.amount for c in built.program.initial_memory if c.kind == "gradients")
    more = (batches - 1) * (ranks - 1) / ranks * 4.0 * sum(stages)
    assert sent[2] - sent[1] == pytest.approx(more, rel=1e-9)
    assert kept[2] == pytest.approx(kept[1] / ranks, rel=1e-9)
