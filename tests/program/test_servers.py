"""Parameter servers: bytes over NICs, who waits for whom, and throughput up to what servers can take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.timeline import Timeline
from simulator.hardware.cluster import Cluster
from simulator.program.builder import BuildOptions, Built, blueprint
from simulator.program.host_copies import LATENCY
from simulator.results.breakdown import breakdown
from simulator.simulation import SimulationOptions, run
from simulator.workloads.modules.lookup import distinct_rows
from simulator.workloads.workload import Workload
from tests.program.scenarios import FABRICS, LIBRARY, cluster, mixed_cluster, software, workload

FAST = {"network": 1.0, "dense": 1e15, "rows": 1e15}
ROWS, WIDTH = 10_000, 64


def profile(overlaps: bool = False, **servers: Any) -> Any:
    overlap = {"dp_gradients": overlaps, "dp_parameters": False, "tp": True, "pp": True}
    return software(overlap=overlap, servers={**FAST, **servers})


def step(
    synchronisation: dict[str, Any],
    machine: Cluster,
    job: Workload | None = None,
    software: Any = None,
    options: SimulationOptions = SimulationOptions(),
) -> tuple[Built, Timeline]:
    job = job or workload(global_batch=machine.num_gpus)
    plan = job.plan.model_copy(
        update={"synchronisation": type(job.plan.synchronisation).model_validate(synchronisation)}
    )
    job = Workload.model_validate({**dict(job), "plan": plan})
    return run(blueprint(machine, job, software or profile(), LIBRARY, options.build), options)


def bytes_on(built: Built, timeline: Timeline, kind: str) -> list[float]:
    """Bytes of a step over each link of that kind."""
    found = []
    for use, resource in zip(timeline.use.tolist(), built.program.resources, strict=True):
        if resource.kind == kind:
            found += [use / timeline.num_steps] * resource.members
    return found


def size(built: Built) -> int:
    return built.setting.content[0][0].whole.parameters.total


def tables(**changes: Any) -> Workload:
    """A table, and one matrix behind it."""
    lookup = {"kind": "lookup", "rows": ROWS, "width": WIDTH, "lookups": 1, "skew": 0.0}
    operators = [lookup, {"kind": "linear", "inputs": WIDTH, "outputs": 32}]
    layers = [{"name": "all", "width": 32, "operators": operators}]
    described = {
        "name": "tables",
        "model": {"family": "graph", "name": "tables", "layers": layers},
        "global_batch": 4,
        "sequence_length": 256,
        "precision": "fp32",
        "plan": {"optimizer": "sgd", **changes.pop("plan", {})},
    }
    return Workload.model_validate({**described, **changes})


@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("gpus", [1, 4])
def test_servers_take_in_what_every_gpu_of_other_nodes_sends(nodes: int, gpus: int) -> None:
    """G (M-1)/M x S into each NIC, and as much out: gradients in, parameters out."""
    machine = cluster(nodes, gpus, 1)
    built, timeline = step({"dense": "servers"}, machine)
    share = gpus * (nodes - 1) / nodes * size(built)
    assert bytes_on(built, timeline, "nic_in") == pytest.approx([share * (4.0 + 2.0)] * nodes, rel=1e-9)
    assert bytes_on(built, timeline, "nic_out") == pytest.approx([share * (4.0 + 2.0)] * nodes, rel=1e-9)


def test_one_server_takes_in_everything() -> None:
    """Incast: all others' gradients into one NIC, all parameters out of it."""
    built, timeline = step({"dense": "servers", "servers": 1}, cluster(4, 2, 1))
    into, out = (sorted(bytes_on(built, timeline, kind)) for kind in ("nic_in", "nic_out"))
    assert into == pytest.approx([2 * 2.0 * size(built)] * 3 + [6 * 4.0 * size(built)], rel=1e-9)
    assert out == pytest.approx([2 * 4.0 * size(built)] * 3 + [6 * 2.0 * size(built)], rel=1e-9)


def test_the_step_is_as_long_as_the_servers_nic_needs() -> None:
    """One GPU per node, all on one server: (n-1) S through one NIC of 25 GB/s, each way, after the backward."""
    machine = cluster(8, 1, 1)
    built, timeline = step({"dense": "servers", "servers": 1}, machine)
    alone, quiet = step({"dense": "servers"}, cluster(1, 1, 1))
    expected = 7 * size(built) * (4.0 + 2.0) / 25e9
    local = size(alone) * (4.0 + 2.0) / (0.83 * 32e9)
    update = next(t for t in quiet.end if t)  # the same kernels in both
    assert update > 0.0
    assert timeline.makespan - (quiet.makespan - local) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gpus", [2, 4])
def test_gpus_that_add_up_first_send_once_per_node(gpus: int) -> None:
    machine = cluster(4, gpus, 1)
    each, together = (
        step({"dense": "servers"}, machine),
        step({"dense": "servers", "local_aggregation": True}, machine),
    )
    for kind in ("nic_in", "nic_out"):
        assert gpus * sum(bytes_on(*together, kind)) == pytest.approx(sum(bytes_on(*each, kind)), rel=1e-9)
    whole = size(together[0]) * 4.0 / 0.83
    assert bytes_on(*together, "host_out") == pytest.approx([whole] * machine.num_gpus, rel=1e-9)


def test_a_server_that_is_slow_limits_the_step() -> None:
    fast, slow = (
        step({"dense": "servers"}, cluster(4, 1, 1), software=profile(dense=rate)) for rate in (1e15, 1e8)
    )
    handled = size(slow[0]) * (4.0 + 2.0) / 1e8
    assert slow[1].makespan > handled > fast[1].makespan
    assert slow[1].makespan == pytest.approx(handled, rel=0.05)


@pytest.mark.parametrize("nodes", [2, 8, 32])
def test_without_a_barrier_throughput_is_the_sum_of_rates_up_to_the_servers_limit(nodes: int) -> None:
    """A replica alone: its own step. All together: at least what one server's NIC takes for all of them."""
    machine = cluster(nodes, 1, 1)
    built, timeline = step({"scheme": "asp", "dense": "servers", "servers": 1}, machine)
    away = size(built) * (4.0 + 2.0) / 25e9
    waiting = step({"dense": "servers", "servers": 1}, machine)[1]
    compute = waiting.makespan - (nodes - 1) * away - 2 * LATENCY
    near = compute + size(built) * 6.0 / (0.83 * 32e9)  # the replica beside the server
    far = compute + away
    rates = 1.0 / near + (nodes - 1) / far
    limit = (nodes - 1) * size(built) * 4.0 / 25e9  # gradients in; parameters go out meanwhile
    assert timeline.step_seconds == pytest.approx(max(nodes / rates, limit), rel=0.02)
    assert timeline.step_seconds < waiting.makespan


@given(slow=st.integers(1, 3), fast=st.integers(1, 3))
@settings(max_examples=6, deadline=None)
def test_unequal_replicas_add_up_their_rates(slow: int, fast: int) -> None:
    """Nothing but compute matters: 1 / step = mean of 1 / T_i."""
    fabric = dict(FABRICS[0])
    job = workload(global_batch=slow + fast, hidden=1024)
    alone = []
    both = mixed_cluster(1, 1, 1, fabric)
    for group in both.groups:
        machine = both.model_copy(update={"groups": (group,)})
        one = job.model_copy(update={"global_batch": 1})
        alone.append(step({"scheme": "asp", "dense": "servers"}, machine, one)[1].makespan)
    mixed = mixed_cluster(fast, slow, 1, fabric)
    _, timeline = step({"scheme": "asp", "dense": "servers"}, mixed, job)
    expected = (slow + fast) / (fast / alone[0] + slow / alone[1])
    assert timeline.step_seconds == pytest.approx(expected, rel=0.05)
    waiting = step({"dense": "servers"}, mixed, job)[1].makespan
    assert timeline.step_seconds < waiting


def test_unequal_replicas_are_busy_all_the_time() -> None:
    """Fast and slow ones alike: what each does in a step of the job adds up to that step."""
    mixed, job = mixed_cluster(2, 2, 1, dict(FABRICS[0])), workload(global_batch=4, hidden=1024)
    built, timeline = step({"scheme": "asp", "dense": "servers"}, mixed, job)
    assert built.communicators.num_classes > 1
    for rank_class in range(built.communicators.num_classes):
        found = breakdown(built.program, timeline, rank_class)
        assert sum(found.values()) == pytest.approx(timeline.step_seconds, rel=1e-9)
        assert found["bubble"] < 0.02 * timeline.step_seconds
        assert min(found.values()) >= 0.0


def test_rows_travel_instead_of_tables() -> None:
    """Distinct rows of 256 draws, with their numbers, to and from the servers; the matrix by all-reduce."""
    job, machine = tables(), cluster(4, 1, 1)
    built, timeline = step({"sparse": "servers"}, machine, job)
    met = ROWS * (1 - (1 - 1 / ROWS) ** 256) * (WIDTH * 4.0 + 8.0)
    dense = 2 * 3 / 4 * WIDTH * 32 * 4.0 / 0.9
    assert bytes_on(built, timeline, "nic_out") == pytest.approx([2 * 3 / 4 * met + dense] * 4, rel=1e-6)


def test_gathered_rows_grow_with_the_replicas_and_dense_tables_do_not() -> None:
    sent = {}
    for nodes in (2, 8):
        job = tables(global_batch=nodes)
        for how in ("gathered", "dense"):
            sent[how, nodes] = bytes_on(*step({"sparse": how}, cluster(nodes, 1, 1), job), "nic_out")[0] * 0.9
    dense = WIDTH * 32 * 4.0
    met = ROWS * (1 - (1 - 1 / ROWS) ** 256) * (WIDTH * 4.0 + 8.0)
    for nodes in (2, 8):
        around = 2 * (nodes - 1) / nodes
        assert sent["gathered", nodes] == pytest.approx((nodes - 1) * met + around * dense, rel=1e-6)
        assert sent["dense", nodes] == pytest.approx(around * (ROWS * WIDTH * 4.0 + dense), rel=1e-9)


@given(st.integers(2, 10**6), st.sampled_from([0.0, 0.7, 1.0, 1.3]), st.integers(1, 10**6))
@settings(deadline=None)
def test_distinct_rows_are_no_more_than_there_are_and_are_drawn(rows: int, skew: float, draws: int) -> None:
    found = distinct_rows(rows, skew, float(draws))
    assert 1.0 - 1e-9 <= found <= min(rows, draws) * (1 + 1e-9)
    assert found <= distinct_rows(rows, skew, 2.0 * draws) <= 2.0 * found * (1 + 1e-9)
    if skew == 0.0:
        assert found == pytest.approx(rows * -pow_less_one(rows, draws), rel=1e-6)


def pow_less_one(rows: int, draws: int) -> float:
    from math import expm1, log1p

    return expm1(draws * log1p(-1.0 / rows))


SCHEMES: tuple[dict[str, Any], ...] = (
    {"dense": "servers"},
    {"dense": "servers", "servers": 1},
    {"dense": "servers", "sparse": "servers", "local_aggregation": True},
    {"sparse": "servers", "table_parts": 2},
    {"sparse": "gathered"},
    {"scheme": "asp", "dense": "servers", "sparse": "servers"},
)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(SCHEMES), st.sampled_from(FABRICS), st.sampled_from([1, 2]), st.booleans())
def test_folded_equals_unfolded(
    synchronisation: dict[str, Any], fabric: Any, gpus: int, overlaps: bool
) -> None:
    machine = cluster(4, gpus, 1, dict(fabric))
    times = [
        step(
            synchronisation,
            machine,
            tables(global_batch=4 * gpus),
            profile(overlaps),
            SimulationOptions(build=BuildOptions(fold=fold)),
        )[1].step_seconds
        for fold in (True, False)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize(
    ("synchronisation", "plan", "message"),
    [
        ({"sparse": "servers"}, {}, "needs a model with tables"),
        ({"scheme": "asp"}, {}, "asp needs servers"),
        ({"servers": 2}, {}, "is for dense or sparse: servers"),
        ({"dense": "servers"}, {"zero": 1}, "does not go with parameters on servers"),
        ({"dense": "servers", "wire_dtype": "bf16"}, {}, "neither narrower nor compressed"),
        ({"dense": "servers", "scheme": "local"}, {}, "exchanges parameters, not gradients"),
    ],
)
def test_what_does_not_go_together_is_refused(synchronisation: Any, plan: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload(synchronisation=synchronisation, **plan)
