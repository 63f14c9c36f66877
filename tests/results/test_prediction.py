"""A prediction keeps its books: kinds sum to the step, shares lie between 0 and 1, bounds hold, nothing is lost."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import simulator
from simulator.results.breakdown import KINDS
from simulator.results.memory import MemoryReport
from simulator.results.utilization import ALWAYS, peak_flops
from tests.program.test_folding_is_exact import scenarios
from tests.results.predictions import from_catalogue, prediction_of

QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(scenarios())
def test_kinds_are_not_negative_and_sum_to_the_step(scenario: tuple[Any, Any, Any]) -> None:
    prediction = prediction_of(scenario)
    assert tuple(prediction.breakdown_s) == KINDS
    assert min(prediction.breakdown_s.values()) >= -1e-12 * prediction.step_time_s
    assert sum(prediction.breakdown_s.values()) == pytest.approx(prediction.step_time_s, rel=1e-9)


@QUICK
@given(scenarios())
def test_the_critical_path_sums_to_the_step_with_its_longest_kind_first(
    scenario: tuple[Any, Any, Any],
) -> None:
    prediction = prediction_of(scenario)
    seconds = [part["seconds"] for part in prediction.critical_path]
    assert sum(seconds) == pytest.approx(prediction.step_time_s, rel=1e-9)
    assert seconds == sorted(seconds, reverse=True) and min(seconds) > 0.0


@QUICK
@given(scenarios())
def test_utilisation_lies_between_0_and_1_and_names_what_the_design_lists(
    scenario: tuple[Any, Any, Any],
) -> None:
    use = prediction_of(scenario).utilization
    assert set(ALWAYS) <= set(use)
    assert all(0.0 <= share <= 1.0 + 1e-9 for share in use.values()), use


@QUICK
@given(scenarios())
def test_no_step_beats_the_peak_of_its_gpus(scenario: tuple[Any, Any, Any]) -> None:
    prediction = prediction_of(scenario)
    bound = prediction.workload.flops / peak_flops(prediction.built)
    assert prediction.step_time_s >= bound
    assert prediction.mfu == pytest.approx(bound / prediction.step_time_s)
    assert prediction.hfu >= prediction.mfu * (1 - 1e-9)
    assert prediction.utilization["tensor_core"] == pytest.approx(prediction.hfu)


@QUICK
@given(scenarios())
def test_memory_by_kind_sums_to_each_peak_and_the_fullest_class_is_reported(
    scenario: tuple[Any, Any, Any],
) -> None:
    memory = prediction_of(scenario).memory
    for one in memory.classes:
        assert sum(one.by_kind.values()) == pytest.approx(one.peak_bytes)
        assert min(one.by_kind.values()) >= 0.0
    assert memory.peak_bytes / memory.capacity_bytes == max(one.share for one in memory.classes)
    assert [one.stage for one in memory.by_stage()] == sorted({one.stage for one in memory.classes})
    assert memory.shortfall_bytes == max(0.0, memory.peak_bytes - memory.capacity_bytes)
    assert memory.fits == (memory.shortfall_bytes == 0.0)
    assert memory.peak_low_bytes <= memory.peak_bytes <= memory.peak_high_bytes
    assert memory.may_not_fit == (memory.fits and memory.peak_high_bytes > memory.capacity_bytes)


def test_a_model_without_parameters_or_activations_holds_nothing_and_fits() -> None:
    cluster = simulator.load_cluster("dgx-h100-superpod", gpus=64)
    prediction = simulator.simulate(cluster, simulator.load_workload("equal-blocks"))
    memory = prediction.memory
    assert [one.stage for one in memory.by_stage()] == list(range(8))
    assert memory.peak_bytes == 0.0 and memory.capacity_bytes > 0.0 and memory.fits
    assert "0 B (0 B to 0 B) of " in str(prediction)


@QUICK
@given(scenarios())
def test_every_number_is_a_plain_one(scenario: tuple[Any, Any, Any]) -> None:
    prediction = prediction_of(scenario)
    fields = {key: value for key, value in vars(prediction).items() if key not in ("cluster", "run", "built")}
    found = [fields, prediction.to_dict(), [vars(one) for one in prediction.memory.classes]]
    assert set(map(type, _leaves(found))) <= {float, int, str, bool, type(None), MemoryReport}


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping | list | tuple):
        for one in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _leaves(one)
    else:
        yield tree


@QUICK
@given(scenarios())
def test_folding_changes_no_result(scenario: tuple[Any, Any, Any]) -> None:
    folded, unfolded = prediction_of(scenario), prediction_of(scenario, fold=False)
    assert folded.step_time_s == pytest.approx(unfolded.step_time_s, rel=1e-9)
    assert folded.utilization == pytest.approx(unfolded.utilization, rel=1e-9)
    assert folded.hfu == pytest.approx(unfolded.hfu, rel=1e-9)
    assert folded.memory.peak_bytes == pytest.approx(unfolded.memory.peak_bytes, rel=1e-9)


def test_micro_batches_that_were_counted_instead_of_simulated_change_no_result() -> None:
    short = from_catalogue(vpp=1)
    long = from_catalogue(vpp=1, periodic=False)
    assert short.run.repetitions and not long.run.repetitions
    for name in ("step_time_s", "mfu", "hfu", "energy_j", "cost_usd"):
        assert getattr(short, name) == pytest.approx(getattr(long, name), rel=1e-9), name
    assert short.breakdown_s == pytest.approx(long.breakdown_s, rel=1e-6, abs=1e-6)
    assert short.utilization == pytest.approx(long.utilization, rel=1e-9)
    assert dict(short.memory.by_kind) == pytest.approx(dict(long.memory.by_kind))
    paths = [{part["kind"]: part["seconds"] for part in one.critical_path} for one in (short, long)]
    assert paths[0] == pytest.approx(paths[1], rel=0.02, abs=1e-3)


def test_the_timeline_has_every_micro_batch_of_a_step_that_repeats_itself() -> None:
    prediction = from_catalogue(vpp=1)
    assert prediction.run.repetitions
    assert prediction.timeline["micro_batch"].max() == 47
    assert prediction.whole.step_time_s == pytest.approx(prediction.step_time_s, rel=1e-9)


def test_the_dictionary_is_json_and_repeats_the_attributes() -> None:
    prediction = from_catalogue()
    tree = json.loads(json.dumps(prediction.to_dict(), allow_nan=False))
    assert tree["step_time_s"] == prediction.step_time_s
    assert tree["tokens_per_s"] == pytest.approx(48 * 2048 / prediction.step_time_s)
    assert tree["tokens_per_s_per_gpu"] == pytest.approx(tree["tokens_per_s"] / 64)
    assert tree["memory"]["by_kind"] == dict(prediction.memory.by_kind)
    assert len(tree["memory"]["by_stage"]) == 8


def test_the_table_is_what_printing_shows() -> None:
    assert str(from_catalogue()).startswith("gpt3-175b on selene, 64 GPUs\n")


@pytest.mark.parametrize(("room", "warns"), [(1.02, True), (1.2, False), (0.9, False)])
def test_a_peak_just_below_the_capacity_is_warned_of(room: float, warns: bool) -> None:
    workload = simulator.load_workload("megatron-1.7b")
    peak = simulator.simulate(simulator.load_cluster("selene", gpus=32), workload).memory.peak_bytes
    capacity = {"node.gpu.memory.capacity": f"{int(peak * room)} B"}
    tight = simulator.simulate(simulator.load_cluster("selene", gpus=32, overrides=capacity), workload)
    assert any(text.startswith("memory:") for text in tight.warnings) == warns


def test_a_prediction_that_is_dropped_leaves_nothing_to_the_garbage_collector() -> None:
    """Else it would pile up: what a step made is put with what is old, without being looked at."""
    cluster = simulator.load_cluster("selene", 64)
    workload = simulator.load_workload("gpt3-175b", {"global_batch": 96})
    simulator.simulate(cluster, workload)  # fills the caches
    gc.collect()
    gc.disable()
    try:
        simulator.simulate(cluster, workload)
        assert gc.collect() == 0
    finally:
        gc.enable()
