"""Shards of unequal size: padded gathers move the longest from everybody, grouped ones each as long as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.costs.memory import stage_state
from simulator.description import DescriptionError
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, Built, build
from simulator.sweeps.objectives import objective
from simulator.sweeps.search import search
from tests.program.scenarios import LIBRARY, cluster, mixed_cluster, software, workload

QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RATE = 0.9  # achieved fraction of a NIC: links are drawn on by bytes over it
FABRIC = {"kind": "single_switch", "hop_latency": 5e-7}
BROADCASTS = LIBRARY.model_copy(update={"choices": {**LIBRARY.choices, "broadcast": ("ring",)}})


def shared_out(parts: Any, unequal: str = "padded", **changes: Any) -> Any:
    zero3 = {"parts": parts, "unequal": unequal, **changes.pop("zero3", {})}
    return workload(global_batch=4, zero=3, zero3=zero3, **changes)


def step(parts: Any, unequal: str = "padded", machine: Any = None, **options: bool) -> tuple[float, Built]:
    job = shared_out(parts, unequal)
    built = build(machine or cluster(4, 1, 1), job, software(), BROADCASTS, BuildOptions(**options))
    return execute(built.program).makespan, built


def sent(parts: Any, unequal: str) -> float:
    """Bytes out of all NICs."""
    _, built = step(parts, unequal, fold=False)
    timeline = execute(built.program)
    nics = [i for i, r in enumerate(built.program.resources) if r.kind == "nic_out"]
    return sum(float(timeline.use[nic]) for nic in nics) * RATE


RATIOS = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any)


@QUICK
@given(ratios=RATIOS)
def test_padding_moves_the_skew_times_the_bytes_and_grouping_the_bytes(ratios: list[int]) -> None:
    even, skew = sent("even", "padded"), max(ratios) * 4 / sum(ratios)
    assert sent(ratios, "padded") == pytest.approx(even * skew, rel=1e-9)
    assert sent(ratios, "grouped") == pytest.approx(even, rel=1e-9)


def test_equal_ratios_are_an_even_split() -> None:
    assert step([2, 2, 2, 2])[0] == pytest.approx(step("even")[0], rel=1e-12)


@QUICK
@given(ratios=RATIOS, unequal=st.sampled_from(["padded", "grouped"]))
def test_folded_equals_unfolded(ratios: list[int], unequal: str) -> None:
    assert step(ratios, unequal)[0] == pytest.approx(step(ratios, unequal, fold=False)[0], rel=1e-9)


def test_padding_wins_where_shards_are_nearly_equal_and_grouping_where_one_has_all() -> None:
    assert step([5, 5, 5, 6], "padded")[0] < step([5, 5, 5, 6], "grouped")[0]
    assert step([0, 0, 0, 1], "grouped")[0] < step([0, 0, 0, 1], "padded")[0]


@given(ratios=RATIOS)
@QUICK
def test_every_rank_holds_its_share_of_the_state(ratios: list[int]) -> None:
    _, built = step(ratios, fold=False)
    layers = [placed.layer for content in built.setting.content[0] for placed in content.layers]
    whole = 4 * stage_state(layers, built.setting.workload, built.setting.shard, 4).total
    held = [0.0] * 4
    for change in built.program.initial_memory:
        held[change.rank_class] += change.amount
    assert held == pytest.approx([whole * ratio / sum(ratios) for ratio in ratios], rel=1e-9)


def test_proportional_shards_follow_the_peaks_of_the_gpus() -> None:
    machine = mixed_cluster(1, 1, 2, FABRIC)  # peaks of 312 and 125 TFLOP/s
    _, built = step("proportional", machine=machine)
    fast, slow = 312 / (312 + 125) * 2, 125 / (312 + 125) * 2
    assert built.setting.parts == pytest.approx((fast, fast, slow, slow), rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": [1, 2, 3]}, r"needs 4 numbers \(dp x cp\)"),
        ({"parts": [1, 2, 3, -1]}, "none below 0"),
        ({"parts": [1, 2, 3, 4], "zero3": {"shard_group": 2}}, "does not go with unequal shards"),
        ({"parts": [1, 2, 3, 4], "offload": {"optimizer": "cpu"}}, "does not go with unequal shards"),
    ],
)
def test_what_unequal_shards_do_not_go_with_is_said(changes: dict[str, Any], message: str) -> None:
    faults = shared_out(**changes).faults_on(4)
    assert any(re.search(message, text) for _, text in faults)


def test_search_refuses_unequal_shards() -> None:
    machine = cluster(4, 1, 1)
    with pytest.raises(DescriptionError, match="search compares plans of equal shards"):
        search(machine, shared_out([1, 2, 3, 4]), objective("step_time", machine))
