"""Replicas that agree less often, with fewer, or in fewer bytes take the time and send the bytes of closed forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.description.faults import DescriptionError
from simulator.engine.timeline import Timeline
from simulator.hardware.cluster import Background
from simulator.program.builder import BuildOptions, Built, blueprint
from simulator.ranks.grid import Grid
from simulator.simulation import SimulationOptions, run
from simulator.workloads.plan import Plan
from tests.program.scenarios import FABRICS, LIBRARY, cluster, software, workload

NIC = 0.9  # achieved fraction: links are drawn on by bytes over it
LATE = software(overlap={"dp_gradients": False, "dp_parameters": False, "tp": True, "pp": True})


def step(
    synchronisation: dict[str, Any],
    nodes: int = 8,
    profile: Any = LATE,
    options: SimulationOptions = SimulationOptions(),
    fabric: dict[str, Any] | None = None,
    **plan: Any,
) -> tuple[Built, Timeline]:
    """One GPU per node, one micro-batch per replica."""
    machine = cluster(nodes, 1, 1, fabric)
    job = workload(
        global_batch=nodes - synchronisation.get("backup", 0), synchronisation=synchronisation, **plan
    )
    assert job.faults_on(nodes) == []
    return run(blueprint(machine, job, profile, LIBRARY, options.build), options)


def sent(built: Built, timeline: Timeline) -> float:
    """Bytes out of one NIC per step."""
    used = [
        (use, resource.members)
        for use, resource in zip(timeline.use.tolist(), built.program.resources, strict=True)
        if resource.kind == "nic_out"
    ]
    mean = sum(use * members for use, members in used) / sum(members for _, members in used)
    return mean * NIC / timeline.num_steps


def parameters(built: Built) -> int:
    return built.setting.content[0][0].whole.parameters.total


@pytest.mark.parametrize("every", [2, 3, 5, 12])
def test_local_steps_average_once_in_so_many(every: int) -> None:
    """Bytes 2 (n-1)/n x 4P every H steps; H steps take one that averages and H - 1 that do not."""
    one, several = step({"scheme": "local"}), step({"scheme": "local", "every": every})
    whole = 2 * 7 / 8 * 4.0 * parameters(one[0])
    assert sent(*one) == pytest.approx(whole, rel=1e-9)
    assert sent(*several) == pytest.approx(whole / every, rel=1e-9)
    two = step({"scheme": "local", "every": 2})[1].makespan
    alone = two - one[1].makespan
    assert several[1].makespan == pytest.approx(one[1].makespan + (every - 1) * alone, rel=1e-9)


def test_equal_local_steps_are_skipped_exactly() -> None:
    skipped = step({"scheme": "local", "every": 10}, pp=2)
    whole = step({"scheme": "local", "every": 10}, options=SimulationOptions(periodic=False), pp=2)
    assert len(skipped[0].program.tasks) < len(whole[0].program.tasks)
    assert skipped[1].makespan == pytest.approx(whole[1].makespan, rel=1e-9)
    assert sent(*skipped) == pytest.approx(sent(*whole), rel=1e-9)


@pytest.mark.parametrize("shuffle", ["rotate", "stride"])
@pytest.mark.parametrize("group", [2, 4])
def test_groups_send_what_a_ring_of_their_size_does(group: int, shuffle: str) -> None:
    found = step({"scheme": "groups", "group": group, "shuffle": shuffle}, nodes=16)
    assert found[0].setting.cycle == (2 if shuffle == "rotate" or group == 4 else 4)
    assert sent(*found) == pytest.approx(2 * (group - 1) / group * 4.0 * parameters(found[0]), rel=1e-9)


def test_one_group_of_all_takes_as_long_as_summing_gradients() -> None:
    """fp32 copies of the parameters are as many bytes as fp32 gradients."""
    together, bsp = step({"scheme": "groups", "group": 8}), step({})
    assert together[1].makespan == pytest.approx(bsp[1].makespan, rel=1e-9)


@given(st.sampled_from([2, 4, 8, 16, 12]), st.sampled_from([2, 3, 4]))
def test_strides_let_everybody_meet_everybody(replicas: int, group: int) -> None:
    plan = Plan(name="", synchronisation={"scheme": "groups", "group": group, "shuffle": "stride"})
    try:
        grid = Grid.of(plan, replicas)
    except ValueError:
        return
    met = {rank: {rank} for rank in range(replicas)}
    for number in range(len(grid.mixing)):
        groups = grid.groups(f"mix{number}")
        assert sorted(groups.ravel().tolist()) == list(range(replicas))
        joined = [set().union(*(met[int(rank)] for rank in members)) for members in groups]
        met = {int(rank): all_ for members, all_ in zip(groups, joined, strict=True) for rank in members}
    assert all(len(others) == replicas for others in met.values())


@pytest.mark.parametrize("neighbours", [1, 2, 3])
def test_gossip_sends_the_same_whatever_the_number_of_replicas(neighbours: int) -> None:
    found = [step({"scheme": "gossip", "neighbours": neighbours}, nodes=nodes) for nodes in (4, 8, 16)]
    for one in found:
        assert sent(*one) == pytest.approx(neighbours * 4.0 * parameters(one[0]), rel=1e-9)
    times = [one[1].makespan for one in found]
    assert times == pytest.approx([times[0]] * 3, rel=1e-9)


@pytest.mark.parametrize("zero", [0, 1])
def test_compressed_gradients_are_so_much_smaller(zero: int) -> None:
    plain, small = (
        step({"compression": {"ratio": ratio}}, zero=zero, optimizer="sgd", master_weights=False)
        for ratio in (1.0, 0.25)
    )
    reduced = (2 if zero == 0 else 1) * 7 / 8 * 4.0 * parameters(plain[0])
    assert sent(*plain) - sent(*small) == pytest.approx(0.75 * reduced, rel=1e-9)


def test_what_cannot_be_added_up_is_gathered_from_all() -> None:
    found = step({"compression": {"ratio": 0.01, "reducible": False}})
    assert sent(*found) == pytest.approx(7 * 0.01 * 4.0 * parameters(found[0]), rel=1e-9)


@pytest.mark.parametrize(("reducible", "decoded"), [(True, 1), (False, 8)])
def test_codecs_take_the_time_of_their_gradients(reducible: bool, decoded: int) -> None:
    """Nothing overlaps: encode own gradients, decode the sum, or those of every rank."""
    codec = {"ratio": 0.5, "reducible": reducible}
    free, paid = step({"compression": codec}), step({"compression": {**codec, "encode": 1e9, "decode": 2e9}})
    size = 4.0 * parameters(free[0])
    expected = size / 1e9 + decoded * size / 2e9
    assert paid[1].makespan - free[1].makespan == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("dtype", "part"), [("bf16", 0.5), ("fp8", 0.25), ("fp32", 1.0)])
def test_gradients_travel_in_the_type_of_the_wire(dtype: str, part: float) -> None:
    wide, narrow = step({}), step({"wire_dtype": dtype})
    assert sent(*narrow) == pytest.approx(part * sent(*wide), rel=1e-9)
    casts = [task for task in narrow[0].program.tasks if task.label.endswith("code gradients")]
    assert bool(casts) == (dtype != "fp32")


def test_backup_replicas_add_no_samples() -> None:
    """Eight replicas, of which six count, run as many micro-batches each as six would."""
    found = step({"scheme": "backup", "backup": 2})
    assert found[0].setting.num_micro_batches == 1
    assert found[1].makespan == pytest.approx(step({})[1].makespan, rel=1e-9)


SCHEMES: tuple[dict[str, Any], ...] = (
    {"scheme": "local", "every": 2},
    {"scheme": "groups", "group": 2},
    {"scheme": "groups", "group": 2, "shuffle": "stride"},
    {"scheme": "gossip", "neighbours": 1},
    {"scheme": "gossip", "neighbours": 2},
    {"compression": {"ratio": 0.1, "reducible": False, "encode": 5e9, "decode": 5e9}},
    {"wire_dtype": "bf16"},
)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(SCHEMES), st.sampled_from(FABRICS), st.sampled_from([1, 2]), st.booleans())
def test_folded_equals_unfolded(
    synchronisation: dict[str, Any], fabric: Any, pp: int, overlaps: bool
) -> None:
    profile = software() if overlaps else LATE
    times = [
        step(
            synchronisation,
            profile=profile,
            options=SimulationOptions(build=BuildOptions(fold=fold)),
            fabric=dict(fabric),
            pp=pp,
        )[1].makespan
        for fold in (True, False)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_mirrored_groups_across_racks_are_one_task_when_folded() -> None:
    """Half of the pairs that cross into the loaded rack list their members the other way round."""
    fabric = dict(FABRICS[1])
    machine = cluster(8, 1, 1, fabric).model_copy(
        update={"background": (Background(links="leaf_up", which=(0,), share=0.8),)}
    )
    job = workload(global_batch=8, synchronisation={"scheme": "groups", "group": 2})
    times = []
    for fold in (True, False):
        options = SimulationOptions(build=BuildOptions(fold=fold))
        times.append(run(blueprint(machine, job, LATE, LIBRARY, options.build), options)[1].makespan)
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize(
    ("synchronisation", "plan", "message"),
    [
        ({"every": 4}, {}, "is for scheme: local, which is bsp"),
        ({"scheme": "groups"}, {}, "groups needs it"),
        ({"scheme": "gossip", "wire_dtype": "bf16"}, {}, "gossip exchanges parameters"),
        ({"scheme": "local", "every": 4}, {"zero": 1}, "shares out what replicas have in common"),
        ({"scheme": "gossip"}, {"cp": 2}, "cp 2 does not go with"),
        ({"scheme": "local", "every": 2}, {"pp": 2, "schedule": "pipedream"}, "needs steps that end"),
    ],
)
def test_what_does_not_go_together_is_refused(synchronisation: Any, plan: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload(synchronisation=synchronisation, **plan)


@pytest.mark.parametrize(
    ("synchronisation", "message"),
    [
        ({"scheme": "backup", "backup": 8}, "leaves none to wait for"),
        ({"scheme": "gossip", "neighbours": 8}, "more than the other 7"),
        ({"scheme": "groups", "group": 3}, "3 does not divide dp 8"),
        ({"scheme": "groups", "group": 6, "shuffle": "stride"}, "again and again"),
    ],
)
def test_too_few_replicas_are_refused(synchronisation: Any, message: str) -> None:
    faults = workload(global_batch=8, synchronisation=synchronisation).faults_on(8)
    assert any(message in fault for _, fault in faults)


def test_search_refuses_what_it_has_no_bound_for() -> None:
    from simulator.sweeps.objectives import objective
    from simulator.sweeps.search import search

    machine, job = cluster(2, 1, 1), workload(synchronisation={"scheme": "gossip", "neighbours": 1})
    with pytest.raises(DescriptionError, match="gossip has no lower bound"):
        search(machine, job, objective("step_time", machine))
