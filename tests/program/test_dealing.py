"""Documents are dealt to groups of GPUs: exactly where there are few, never over their room, never lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.description import DescriptionError, load
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, build
from simulator.program.dealing import Dealer, Dealt, NoRoom, halves, in_chunks, seconds_of
from simulator.results.data_use import data_use
from simulator.results.memory import memory_report
from simulator.results.utilization import executed_flops
from tests.program.scenarios import LIBRARY, cluster, mixed_cluster, software, workload

QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TAILED = {"distribution": "lognormal", "median": 60, "sigma": 1.2}


@dataclass(frozen=True)
class Quadratic:
    """Compute that divides over a group, an exchange that gets slower with it, and a constant."""

    exchange: float = 0.5
    constant: float = 5.0

    def fixed(self, width: int) -> float:
        return self.constant

    def document(self, length: int, width: int) -> float:
        return (length + 0.05 * length**2) / width + self.exchange * length * (width - 1) / width


SMALL = st.lists(st.integers(1, 40), min_size=1, max_size=5)
MANY = st.lists(st.integers(1, 60), min_size=1, max_size=60)
EXCHANGES = st.sampled_from([0.0, 0.3, 2.0])


def divisions(total: int, widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All ways to divide the GPUs, widest groups first."""
    if total == 0:
        return [()]
    found = []
    for width in reversed(widths):
        if width <= total:
            narrower = tuple(w for w in widths if w <= width)
            found += [(width, *rest) for rest in divisions(total - width, narrower)]
    return found


def best_of_all(documents: list[int], dealer: Dealer) -> float:
    """The least time of one micro-batch, by trying out everything."""
    best = float("inf")
    for division in divisions(dealer.num_gpus, dealer.widths):
        for places in product(range(len(division)), repeat=len(documents)):
            loads = [dealer.costs.fixed(width) for width in division]
            room = [width * dealer.room for width in division]
            for length, place in zip(documents, places, strict=True):
                loads[place] += dealer.costs.document(length, division[place])
                room[place] -= length
            if min(room) >= 0:
                best = min(best, max(loads))
    return best


@QUICK
@given(
    documents=SMALL, num_gpus=st.sampled_from([2, 4]), room=st.sampled_from([20, 40, 200]), exchange=EXCHANGES
)
def test_few_documents_are_dealt_exactly(
    documents: list[int], num_gpus: int, room: int, exchange: float
) -> None:
    dealer = Dealer(num_gpus, halves(num_gpus), room, Quadratic(exchange))
    found, best = dealer.best(sorted(documents, reverse=True)), best_of_all(documents, dealer)
    assert (found is None) == (best == float("inf"))
    if found is not None:
        assert found.seconds == pytest.approx(best, rel=1e-9)


@QUICK
@given(documents=MANY, exchange=EXCHANGES, groups=st.sampled_from(["static", "adaptive", "mixed"]))
def test_every_document_runs_once_and_no_group_is_overfilled(
    documents: list[int], exchange: float, groups: str
) -> None:
    dealer = Dealer(8, halves(8), 16, Quadratic(exchange))
    step = dealer.deal(documents, groups)
    assert Counter(n for one in step for _, held in one.groups for n in held) == Counter(documents)
    for one in step:
        assert sum(width for width, _ in one.groups) == 8
        assert all(sum(held) <= width * dealer.room for width, held in one.groups)
        times = [dealer.costs.fixed(w) + sum(dealer.costs.document(n, w) for n in h) for w, h in one.groups]
        assert one.seconds == pytest.approx(max(times), rel=1e-9)


@QUICK
@given(documents=MANY, exchange=EXCHANGES, room=st.sampled_from([8, 16, 100]))
def test_mixed_groups_are_no_slower_than_one_width_and_that_no_slower_than_a_fixed_one(
    documents: list[int], exchange: float, room: int
) -> None:
    dealer = Dealer(8, halves(8), room, Quadratic(exchange))
    static, adaptive, mixed = (
        seconds_of(dealer.deal(documents, groups)) for groups in ("static", "adaptive", "mixed")
    )
    assert mixed <= adaptive * (1 + 1e-9) <= static * (1 + 2e-9)


@QUICK
@given(documents=MANY, shuffled=st.randoms(), groups=st.sampled_from(["static", "adaptive", "mixed"]))
def test_the_order_of_documents_does_not_matter(documents: list[int], shuffled: Any, groups: str) -> None:
    other = list(documents)
    shuffled.shuffle(other)
    dealer = Dealer(8, halves(8), 16, Quadratic())
    assert dealer.deal(other, groups) == dealer.deal(documents, groups)


@QUICK
@given(documents=MANY, exchange=EXCHANGES)
def test_no_bound_is_above_what_is_dealt(documents: list[int], exchange: float) -> None:
    dealer, lengths = Dealer(8, halves(8), 100, Quadratic(exchange)), sorted(documents, reverse=True)
    for bound, counts in zip(dealer._bounds(lengths), dealer._divisions, strict=True):
        division = [w for w, n in zip(dealer.widths[::-1], counts[::-1], strict=True) for _ in range(n)]
        found = dealer.dealt(lengths, division)
        if found is not None:
            assert bound <= found.seconds * (1 + 1e-9)


def test_best_fit_fills_groups_of_one_width() -> None:
    dealer = Dealer(4, halves(4), 10, Quadratic())
    (one,) = dealer.deal([12, 9, 8, 1], "static", "best_fit")  # into one group of four
    assert one.groups == ((4, (12, 9, 8, 1)),)
    two = Dealer(4, (2,), 10, Quadratic()).deal([12, 9, 8, 1], "static", "best_fit")
    assert [one.groups for one in two] == [((2, (12, 8)), (2, (9, 1)))]


def test_chunks_are_runs_with_the_least_largest_sum() -> None:
    assert in_chunks([9, 5, 4, 3, 2, 1], 3) == [[9], [5, 4], [3, 2, 1]]


def test_a_document_that_fits_no_group_is_said_to() -> None:
    with pytest.raises(NoRoom, match="100 tokens does not fit 4 GPUs with room for 16 each"):
        Dealer(4, halves(4), 16, Quadratic()).deal([100], "mixed")


@pytest.mark.parametrize("num_gpus", [64, 512])
def test_divisions_of_many_gpus_stay_few_and_keep_those_of_one_width(num_gpus: int) -> None:
    dealer = Dealer(num_gpus, halves(32), 16, Quadratic())
    found = {tuple(counts) for counts in dealer._divisions.tolist()}
    assert len(found) <= 5000
    assert all(sum(n * w for n, w in zip(counts, halves(32), strict=True)) == num_gpus for counts in found)
    for place, width in enumerate(halves(32)):
        assert tuple(num_gpus // width if i == place else 0 for i in range(6)) in found


@QUICK
@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=12), st.integers(1, 6), st.randoms())
def test_micro_batches_pass_equal_stages_in_the_seconds_expected(
    times: list[float], stages: int, order: Any
) -> None:
    """Each stage takes up a micro-batch when it and the stage before are done with what they had."""
    expected = seconds_of([Dealt((), time) for time in times], stages)
    order.shuffle(times)
    done = [0.0] * stages
    for time in times:
        before = 0.0
        for stage in range(stages):
            before = done[stage] = max(done[stage], before) + time
    assert done[-1] == pytest.approx(expected, rel=1e-9)


@QUICK
@given(documents=MANY, stages=st.sampled_from([2, 4, 8]))
def test_a_pipeline_is_dealt_more_micro_batches_and_never_expects_more_of_them(
    documents: list[int], stages: int
) -> None:
    alone = Dealer(4, (1, 2, 4), 60, Quadratic())
    step = replace(alone, stages=stages).deal(documents, "adaptive")
    flat = alone.deal(documents, "adaptive")
    assert seconds_of(step, stages) <= seconds_of(flat, stages) * (1 + 1e-12)
    assert sorted(n for one in step for _, held in one.groups for n in held) == sorted(documents)


# --- in a step -------------------------------------------------------------------------------------------------------


def dealt(**changes: Any) -> Any:
    """A step of documents on 8 GPUs."""
    dealing = {"groups": "mixed", "tokens_per_gpu": 128, **changes.pop("dealing", {})}
    data = {"lengths": TAILED, "packing": "dealt", "seed": changes.pop("seed", 0)}
    plan = {"cp": 4, "zero": 3, "context_exchange": "all_to_all", "dealing": dealing, **changes}
    return workload(sequence_length=512, global_batch=24, data=data, **plan)


PIPELINES: list[dict[str, Any]] = [
    {},
    {"pp": 2, "zero": 1},
    {"pp": 2, "zero": 3, "schedule": "zb-h1", "cp": 2, "dealing": {"tokens_per_gpu": 256}},
    {"pp": 4, "zero": 0, "schedule": "gpipe", "cp": 2, "dealing": {"tokens_per_gpu": 256}},
    {"pp": 2, "zero": 1, "tp": 2, "cp": 2, "sequence_parallel": True, "dealing": {"tokens_per_gpu": 256}},
]


@pytest.mark.parametrize("groups", ["static", "adaptive", "mixed"])
@pytest.mark.parametrize("exchange", ["all_to_all", "ring", "all_gather"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_dealt_step_computes_every_document_and_folds_exactly(
    groups: str, exchange: str, pipeline: dict[str, Any]
) -> None:
    dealing = {"groups": groups, **pipeline.get("dealing", {})}
    job = dealt(**{**pipeline, "dealing": dealing, "context_exchange": exchange})
    times = []
    for fold in (True, False):
        built = build(cluster(2, 4, 1), job, software(), LIBRARY, BuildOptions(fold=fold))
        timeline = execute(built.program)
        assert executed_flops(built, timeline) == pytest.approx(job.flops, rel=1e-9)
        times.append(timeline.makespan)
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    tokens = [pack.tokens / pack.degree for one in built.setting.packs for pack in one]
    assert max(tokens) <= job.plan.dealing.tokens_per_gpu


@given(seed=st.integers(0, 50))
@settings(max_examples=5, deadline=None)
def test_expected_times_order_the_kinds_of_groups(seed: int) -> None:
    expected = [
        data_use(
            build(cluster(2, 4, 1), dealt(dealing={"groups": g}, seed=seed), software(), LIBRARY).setting
        )["expected_s"]
        for g in ("static", "adaptive", "mixed")
    ]
    assert expected == sorted(expected, reverse=True)


def test_exchanges_stay_inside_groups_that_a_node_holds() -> None:
    """Two nodes of four GPUs, groups of at most four: no exchange of heads crosses the network."""
    built = build(cluster(2, 4, 1), dealt(), software(), LIBRARY)
    names = {phase.label for task in built.program.tasks for phase in task.phases if phase.kind == "cp"}
    assert names == {"core_attention.to_heads", "core_attention.to_tokens"}
    for task in built.program.tasks:
        for phase in task.phases:
            if phase.kind == "cp":
                kinds = {built.program.resources[resource].kind for resource, _ in phase.draws}
                assert not any(kind.startswith("nic") for kind in kinds)


@pytest.mark.parametrize(
    "changes", [{}, {"pp": 2, "cp": 4, "zero": 1, "dealing": {"groups": "static", "rule": "best_fit"}}]
)
def test_room_is_what_the_ledger_of_the_step_allows(changes: dict[str, Any]) -> None:
    """Filled to the last token, the fullest GPU holds as much as it has memory, and not more."""
    machine = load("cluster", "hgx-h100-cluster", {"num_nodes": 1})
    data = {"lengths": {"distribution": "fixed", "length": 4096}, "packing": "dealt"}
    plan = {
        "cp": 8,
        "context_exchange": "all_to_all",
        "zero": 3,
        "software": "fsdp2-2024",
        "dealing": {"groups": "static"},
    }
    job = {
        "kind": "workload",
        "model": "llama3-8b",
        "global_batch": 256,
        "sequence_length": 4096,
        "precision": "bf16",
        "data": data,
        "plan": plan,
    }
    from simulator.simulation import simulate

    memory = simulate(machine, load("workload", {**job, "plan": {**job["plan"], **changes}})).memory
    assert memory.fits
    assert memory.peak_bytes > 0.93 * memory.capacity_bytes  # documents are whole, and end short of the limit


def test_unequal_gpus_deal_by_the_slowest() -> None:
    machine = mixed_cluster(1, 1, 4, {"kind": "single_switch", "hop_latency": 5e-7})
    built = build(machine, dealt(), software(), LIBRARY)
    assert executed_flops(built, execute(built.program)) == pytest.approx(
        built.setting.workload.flops, rel=1e-9
    )
    assert memory_report(built, execute(built.program)).fits


COSTS = {"quadratic": 1e-9, "linear": 1e-7, "fixed": 0.0, "exchanged": 1e3, "bandwidth": {2: 1e9}}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"pp": 2, "vpp": 2}, "plan.schedule"),
        ({"pp": 2, "schedule": "gpipe", "dealing": {"tokens_per_gpu": None}}, "plan.schedule"),
        ({"micro_batch": 2}, "plan.micro_batch"),
        ({"attention": "unfused", "context_exchange": "all_gather"}, "plan.attention"),
        ({"context_exchange": "usp", "ulysses": 2}, "plan.context_exchange"),
        ({"dealing": {"rule": "best_fit"}}, "plan.dealing.rule"),
        ({"dealing": {"costs": COSTS}}, "no rate for groups of 4 GPUs"),
    ],
)
def test_what_dealing_does_not_go_with_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises((DescriptionError, ValueError), match=key):
        dealt(**changes)


def test_dealing_without_documents_is_refused() -> None:
    with pytest.raises((DescriptionError, ValueError), match=r"plan\.dealing"):
        workload(dealing={"groups": "static"})


def test_a_document_without_room_names_the_key() -> None:
    with pytest.raises(DescriptionError, match="have room for 8 each"):
        build(cluster(2, 4, 1), dealt(dealing={"tokens_per_gpu": 8}), software(), LIBRARY)
