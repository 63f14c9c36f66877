"""The closed form never exceeds the engine, and is close enough to it to prune."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.program.builder import blueprint, build
from simulator.ranks.grid import Grid
from simulator.results.predict import predict
from simulator.simulation import SimulationOptions, run
from simulator.sweeps.bound import Bound, Bounds
from simulator.sweeps.plan_table import table_of
from simulator.sweeps.price_book import PriceBook
from simulator.sweeps.space import Space, plans
from simulator.workloads.synchronisation import Synchronisation
from tests.program.scenarios import FABRICS, LIBRARY, RATES, cluster, software, workload
from tests.program.test_folding_is_exact import SOFTWARE, scenarios

POWER = {"idle": 60.0, "max": 250.0}


@st.composite
def powered(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Scenarios, half of them on GPUs whose power limit slows matrix products."""
    machine, job, profile = draw(scenarios())
    if draw(st.booleans()):
        groups = [group.model_dump(mode="json") for group in machine.node_groups]
        for group in groups:
            group["node"]["gpu"]["power"] = POWER
        described = {"name": "powered", "groups": groups, "fabric": machine.fabric}
        machine = type(machine).model_validate(described)
    return machine, job, profile


SCHEDULES = (
    "gpipe",
    "1f1b",
    "zb-h1",
    "zb-v",
    "dualpipe",
    "dualpipe-v",
    "pipedream",
    "pipedream-2bw",
    "xpipe",
)
fabrics = st.sampled_from(FABRICS).map(dict)


SLOW_START = tuple(
    LIBRARY.model_validate(
        LIBRARY.model_dump(exclude_unset=True)
        | {"algorithms": {name: {"simple": RATES | {"base": base}} for name in LIBRARY.algorithms}}
    )
    for base in (1e-4, 3e-3)
)
"""Collectives whose latency counts for more than their bytes."""

LIBRARIES = tuple(
    LIBRARY.model_copy(update={"choices": {**LIBRARY.choices, "all_reduce": algorithms}})
    for algorithms in (("ring",), ("tree",), ("hierarchical", "ring"))
)
STARTS = (LIBRARY, *SLOW_START)


@st.composite
def scheduled(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Pipelines of every schedule, with and without fully sharded parameters, on GPUs that share NICs and uplinks."""
    num_gpus = draw(st.sampled_from([2, 4, 8]))
    machine = cluster(draw(st.sampled_from([2, 4])), num_gpus, draw(st.sampled_from([1, 2])), draw(fabrics))
    schedule = draw(st.sampled_from(SCHEDULES))
    plan: dict[str, Any] = {
        "pp": draw(st.sampled_from([2, 4])),
        "vpp": 2 if schedule in ("zb-v", "dualpipe", "dualpipe-v") else 1,
    }
    plan |= {"schedule": schedule, "attention": "flash"}
    plan["zero"] = draw(st.sampled_from([0, 1] if schedule == "dualpipe" else [0, 1, 2, 3]))
    plan |= {"order": draw(st.permutations(("tp", "cp", "dp", "pp"))), "tp": draw(st.sampled_from([1, 2]))}
    if machine.num_gpus % (plan["tp"] * plan["pp"]):
        plan["tp"] = 1
    if plan["zero"] == 3:
        plan["zero3"] = {
            "reshard_after_forward": draw(st.booleans()),
            "prefetch": draw(st.sampled_from([0, 2])),
        }
    replicas = machine.num_gpus // plan["tp"] // plan["pp"]
    micro_batches = draw(st.sampled_from([2, plan["pp"], 3 * plan["pp"]]))
    overlap = {what: draw(st.sampled_from([None, False])) for what in ("dp_gradients", "dp_parameters")}
    job = workload(layers=8, global_batch=replicas * micro_batches, overlap=overlap, **plan)
    return machine, job, draw(st.sampled_from(SOFTWARE))


@st.composite
def sharded(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Gradients summed in every micro-batch, and parameters gathered near or far ahead, in one stage or several."""
    tp = draw(st.sampled_from([1, 1, 2]))
    machine = cluster(draw(st.sampled_from([2, 4])), draw(st.sampled_from([2, 4])), 1, draw(fabrics))
    pp, vpp = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2)]))
    if machine.num_gpus < 2 * tp * pp:
        tp, pp = 1, 2
    plan: dict[str, Any] = {"tp": tp, "pp": pp, "vpp": vpp if pp > 1 else 1, "attention": "flash"}
    plan["schedule"] = "interleaved" if plan["vpp"] > 1 else draw(st.sampled_from(["1f1b", "gpipe"]))
    plan["zero"] = draw(st.sampled_from([2, 3, 3]))
    if plan["zero"] == 3:
        plan["zero3"] = {
            "reshard_after_forward": draw(st.sampled_from([True, True, False])),
            "prefetch": draw(st.sampled_from([0, 1, 2, 5])),
        }
    else:
        plan["bucket_size"] = draw(st.sampled_from([1e3, 5e6, 1e12]))
    family = draw(st.sampled_from(["gpt", "gpt", "moe"]))
    if family == "moe":
        plan["ep"] = draw(st.sampled_from([1, 2]))
    plan["scatter_gather"] = draw(st.sampled_from([None, True]))
    replicas = machine.num_gpus // pp // tp
    micro_batches = pp * draw(st.sampled_from([1, 2, 3]))
    overlap = {what: draw(st.sampled_from([None, False])) for what in ("dp_gradients", "dp_parameters", "pp")}
    batch = replicas * micro_batches
    job = workload(layers=16, family=family, global_batch=batch, overlap=overlap, **plan)
    return machine, job, draw(st.sampled_from(SOFTWARE))


def bounds(scenario: tuple[Any, Any, Any], library: Any = LIBRARY) -> Bounds:
    machine, job, profile = scenario
    book = PriceBook(machine, job, library, lambda name: profile)
    return Bound(book).of(table_of(job, machine.num_gpus, [job.plan]))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(powered())
def test_no_step_is_faster_or_smaller_than_its_bound(scenario: tuple[Any, Any, Any]) -> None:
    check_bounds(scenario)


@pytest.mark.long
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(powered(), st.sampled_from(STARTS))
def test_no_step_is_faster_or_smaller_than_its_bound_at_length(
    scenario: tuple[Any, Any, Any], library: Any
) -> None:
    check_bounds(scenario, library)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scheduled(), st.sampled_from(LIBRARIES + SLOW_START))
def test_bound_holds_for_every_schedule(scenario: tuple[Any, Any, Any], library: Any) -> None:
    check_bounds(scenario, library)


@pytest.mark.long
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scheduled(), st.sampled_from(LIBRARIES + SLOW_START))
def test_bound_holds_for_every_schedule_at_length(scenario: tuple[Any, Any, Any], library: Any) -> None:
    check_bounds(scenario, library)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sharded(), st.sampled_from(STARTS))
def test_bound_holds_where_latencies_of_sharded_units_count(
    scenario: tuple[Any, Any, Any], library: Any
) -> None:
    check_bounds(scenario, library)


@pytest.mark.long
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sharded(), st.sampled_from(STARTS))
def test_bound_holds_where_latencies_of_sharded_units_count_at_length(
    scenario: tuple[Any, Any, Any], library: Any
) -> None:
    check_bounds(scenario, library)


def check_bounds(scenario: tuple[Any, Any, Any], library: Any = LIBRARY) -> None:
    machine, job, profile = scenario
    built, timeline = run(blueprint(machine, job, profile, library), SimulationOptions())
    answer = predict(machine, job, built, timeline, {})
    least = bounds(scenario, library)
    assert least.step_time[0] <= answer.step_time_s
    assert least.peak_bytes[0] <= answer.memory.peak_bytes
    assert least.kernel_seconds[0] > 0.0


@pytest.mark.parametrize("overlap", [False, True, "pipelined"])
@pytest.mark.parametrize(
    "plan", [{"zero": 3}, {"pp": 2, "zero": 1}, {"pp": 2, "scaling": "row"}, {"cp": 8, "tp": 1}]
)
def test_bound_holds_for_wide_ends_and_for_tensors_as_pytorch_has_them(
    plan: dict[str, Any], overlap: bool | str
) -> None:
    machine = cluster(2, 4, 4)
    groups = [group.model_dump(mode="json") for group in machine.node_groups]
    groups[0]["node"]["gpu"]["dense_peak"] |= {"fp8": 624e12}
    machine = type(machine).model_validate({"name": "narrow", "groups": groups, "fabric": machine.fabric})
    ends = {"first": 1, "last": 2}
    plan = {"tp": 2, "overlap": {"tp": overlap}, "wide_ends": ends} | plan
    plan["sequence_parallel"] = plan["tp"] > 1
    job = workload(layers=8, attention="flash", **plan).model_copy(update={"precision": "fp8"})
    check_bounds((machine, job, software(dtensor=True, whole_logits=True)))


@pytest.mark.parametrize(
    ("change", "nearly"),
    [
        ({"pp": 4, "schedule": "1f1b"}, 0.98),
        ({"pp": 4, "schedule": "gpipe"}, 0.98),
        ({"pp": 4, "vpp": 2}, 0.97),
        ({"tp": 4, "sequence_parallel": True}, 0.98),
        ({"tp": 2, "pp": 2, "recompute": "full"}, 0.98),
        ({"zero": 3}, 0.88),  # the bound does not know that backward waits for gradients that pile up
    ],
)
def test_bound_is_near_the_engine_where_nothing_is_shared(change: dict[str, Any], nearly: float) -> None:
    scenario = (cluster(2, 4, 4), workload(layers=8, hidden=1024, global_batch=32, **change), software())
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY)
    step = predict(machine, job, built, execute(built.program), {}).step_time_s
    assert nearly * step <= bounds(scenario).step_time[0] <= step


def test_a_table_of_plans_gives_what_each_plan_gives_alone() -> None:
    machine, job = cluster(2, 4, 4), workload(layers=8, global_batch=64)
    book = PriceBook(machine, job, LIBRARY, lambda name: software())
    table = plans(job, machine.num_gpus, Space({"micro_batch": (1, 2), "recompute": ("none",)})).table
    together = Bound(book).of(table)
    some = range(0, len(table), max(1, len(table) // 17))
    for index in some:
        alone = Bound(book).of(table.take([index]))
        assert alone.step_time[0] == pytest.approx(together.step_time[index], rel=1e-12)
        assert alone.peak_bytes[0] == pytest.approx(together.peak_bytes[index], rel=1e-12)


def test_what_zero_casts_is_priced_apart_whichever_comes_first() -> None:
    machine = cluster(2, 4, 4)
    groups = [group.model_dump(mode="json") for group in machine.node_groups]
    groups[0]["node"]["gpu"]["dense_peak"] |= {"fp8": 624e12}
    machine = type(machine).model_validate({"name": "narrow", "groups": groups, "fabric": machine.fabric})
    job = workload(layers=8, attention="flash").model_copy(update={"precision": "fp8"})
    first, then = (
        Bound(PriceBook(machine, job, LIBRARY, lambda name: software())).of(table_of(job, 8, plans))
        for one, other in ((0, 3), (3, 0))
        for plans in [[job.plan.model_copy(update={"zero": zero}) for zero in (one, other)]]
    )
    assert first.kernel_seconds.tolist() == then.kernel_seconds[::-1].tolist()
    assert first.kernel_seconds[0] < first.kernel_seconds[1]


def test_stages_that_list_the_same_groups_in_another_order_share_their_prices() -> None:
    machine, job = cluster(2, 4, 4), workload(layers=8, global_batch=64)
    book = PriceBook(machine, job, LIBRARY, lambda name: software())
    found = [
        book.communicators.groups(Grid.of(job.plan.model_copy(update={"tp": 2, "pp": pp}), 8), "tp")
        for pp in (1, 2, 4)
    ]
    assert found[0] is found[1] is found[2]
    assert found[0].members.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_given_plans_come_back_from_a_table() -> None:
    job = workload(layers=8, global_batch=64, tp=2, pp=2, vpp=2, recompute="full", zero=1)
    table = table_of(job, 8, [job.plan])
    back = table.plan(0)
    assert back.model_copy(update={"schedule": None}) == job.plan


CODECS: tuple[dict[str, Any], ...] = (
    {"wire_dtype": "bf16"},
    {"compression": {"ratio": 0.1, "encode": 20e9, "decode": 20e9}},
    {"compression": {"ratio": 0.02, "reducible": False, "decode": 100e9}},
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from(CODECS))
def test_bound_holds_for_gradients_in_another_form(scenario: tuple[Any, Any, Any], codec: Any) -> None:
    machine, job, profile = scenario
    plan = job.plan.model_copy(update={"synchronisation": Synchronisation.model_validate(codec)})
    check_bounds((machine, job.model_copy(update={"plan": plan}), profile))


def test_a_long_ring_costs_what_its_steps_cost_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, job = cluster(8, 4, 4), workload(layers=4, hidden=1024, global_batch=8, sequence_length=512)
    table = plans(
        job, machine.num_gpus, Space({"cp": (8, 16, 32), "tp": (1, 2), "micro_batch": (1, 2)})
    ).table
    one_by_one = Bound(PriceBook(machine, job, LIBRARY, lambda name: software(launch=4e-6)))
    by_the_step = Bound(PriceBook(machine, job, LIBRARY, lambda name: software(launch=4e-6)))
    found = by_the_step.of(table)
    monkeypatch.setattr("simulator.sweeps.layer_prices.FEW_STEPS", 1000)
    listed = one_by_one.of(table)
    assert len(table) > 20
    assert found.step_time == pytest.approx(listed.step_time, rel=1e-9)
    assert found.kernel_seconds == pytest.approx(listed.kernel_seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "overlaps", "nearly"),
    [
        ({"zero": 0}, False, 0.99),
        ({"zero": 1}, True, 0.85),
        ({"zero": 3}, True, 0.96),
        ({"offload": {"optimizer": "cpu"}}, True, 0.96),
        ({"offload": {"optimizer": "swap"}}, True, 0.8),
    ],
)
@pytest.mark.parametrize("fabric", FABRICS[:2])
def test_bound_is_near_the_engine_where_eight_share_a_nic_or_a_host(
    change: dict[str, Any], overlaps: bool, nearly: float, fabric: dict[str, Any]
) -> None:
    job = workload(layers=8, hidden=1024, global_batch=64, overlap={"dp_gradients": overlaps}, **change)
    machine, profile = cluster(4, 8, 1, dict(fabric)), software()
    built = build(machine, job, profile, LIBRARY)
    step = predict(machine, job, built, execute(built.program), {}).step_time_s
    assert nearly * step <= bounds((machine, job, profile)).step_time[0] <= step
