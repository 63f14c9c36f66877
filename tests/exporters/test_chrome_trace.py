"""The trace is what Perfetto expects: every task, nothing that overlaps on a lane, paired arrows, honest counters."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.exporters.chrome_trace import trace_events, write_trace
from simulator.exporters.counters import MOST_POINTS, link_names, thinned
from simulator.results.prediction import Prediction
from tests.program.test_folding_is_exact import scenarios
from tests.results.predictions import from_catalogue, prediction_of

QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NANOSECOND = 1e-3  # of a µs


def by_lane(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    lanes: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append(event)
    return lanes


def end_of(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


@QUICK
@given(scenarios(), st.booleans())
def test_every_task_is_a_slice_on_each_of_its_lanes(scenario: tuple[Any, Any, Any], fold: bool) -> None:
    prediction = prediction_of(scenario, trace=True, fold=fold)
    program = prediction.built.program
    shown = [e["args"]["task"] for e in trace_events(prediction) if e["ph"] == "X" and "args" in e]
    wanted = [number for number, task in enumerate(program.tasks) for _ in task.lanes]
    assert sorted(shown) == wanted


@QUICK
@given(scenarios(), st.booleans())
def test_no_lane_runs_two_tasks_at_once_and_kernels_lie_within_theirs(
    scenario: tuple[Any, Any, Any], fold: bool
) -> None:
    prediction = prediction_of(scenario, trace=True, fold=fold)
    for slices in by_lane(list(trace_events(prediction))).values():
        tasks = [event for event in slices if "args" in event]
        kernels = [event for event in slices if "args" not in event]
        for group in (tasks, kernels):
            for one, following in pairwise(group):
                assert one["dur"] >= 0.0
                assert end_of(one) <= following["ts"] + NANOSECOND / 2
        starts = np.array([event["ts"] for event in tasks])
        for kernel in kernels:
            around = tasks[int(np.searchsorted(starts, kernel["ts"] + NANOSECOND / 2)) - 1]
            assert around["ts"] <= kernel["ts"] + NANOSECOND / 2
            assert end_of(kernel) <= end_of(around) + NANOSECOND / 2


@QUICK
@given(scenarios(), st.booleans())
def test_arrows_are_paired_and_begin_and_end_in_slices(scenario: tuple[Any, Any, Any], fold: bool) -> None:
    prediction = prediction_of(scenario, trace=True, fold=fold)
    events = list(trace_events(prediction))
    lanes = by_lane(events)
    arrows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["id"]].append(event)
            assert any(
                one["ts"] - NANOSECOND <= event["ts"] <= end_of(one) + NANOSECOND
                for one in lanes[event["pid"], event["tid"]]
            )
    for parts in arrows.values():
        assert "".join(part["ph"] for part in parts) == "s" + "t" * (len(parts) - 2) + "f"
        assert [part["ts"] for part in parts] == sorted(part["ts"] for part in parts)
        assert len({part["pid"] for part in parts}) == len(parts)
    program = prediction.built.program
    shared = [t for t in program.tasks if len({program.lanes[lane].rank_class for lane in t.lanes}) > 1]
    assert len(arrows) == len(shared)


def names(events: list[dict[str, Any]], kind: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}


@QUICK
@given(scenarios())
def test_counters_of_links_stay_within_capacity_and_carry_the_bytes_routed(
    scenario: tuple[Any, Any, Any],
) -> None:
    prediction = prediction_of(scenario, trace=True)
    program, timeline = prediction.built.program, prediction.run
    counters: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in trace_events(prediction):
        if event["ph"] == "C" and event["pid"] == len(program.rank_classes):
            counters[event["name"]].append((event["ts"] * 1e-6, event["args"]["GB/s"] * 1e9))
    links = [i for i, r in enumerate(program.resources) if r.kind != "gpu" and timeline.use[i] > 0.0]
    assert list(counters) == link_names(program, links) and len(counters) == len(links)
    for link, name in zip(links, counters, strict=True):
        resource, used = program.resources[link], timeline.use[link]
        times, rates = (np.array(column) for column in zip(*counters[name], strict=True))
        assert rates.max() <= resource.capacity * (1 + 1e-9)
        assert rates.min() >= 0.0 and rates[-1] == 0.0
        moved = float((rates[:-1] * np.diff(times)).sum())
        # times are rounded to a nanosecond
        assert moved == pytest.approx(used, rel=1e-3, abs=len(times) * resource.capacity * 1e-9)


@QUICK
@given(scenarios())
def test_counters_of_memory_reach_the_peaks_of_the_ledger(scenario: tuple[Any, Any, Any]) -> None:
    prediction = prediction_of(scenario, trace=True)
    highest: dict[int, float] = defaultdict(float)
    for event in trace_events(prediction):
        if event["ph"] == "C" and event["name"] == "memory (bytes)":
            assert min(event["args"].values()) >= 0
            highest[event["pid"]] = max(highest[event["pid"]], sum(event["args"].values()))
    for peak in prediction.run.memory:
        # within one instant memory may rise and fall, which a counter does not show
        assert highest[peak.rank_class] <= peak.bytes + len(peak.by_kind)
        assert highest[peak.rank_class] >= 0.5 * peak.bytes


def test_processes_are_rank_classes_and_threads_are_lanes_by_name() -> None:
    prediction = from_catalogue(trace=True)
    events = list(trace_events(prediction))
    program = prediction.built.program
    processes = list(names(events, "process_name").values())
    assert processes[0] == "stage 0 (rank 0) × 8" and processes[-1] == "links"
    assert len(processes) == len(program.rank_classes) + 1
    threads = names(events, "thread_name")
    assert len(threads) == len(program.lanes)
    assert [threads[0, tid] for tid in range(3)] == ["host", "compute", "tp"]
    micro_batches = [
        e["name"] for e in events if e["ph"] == "X" and "task" in e.get("args", {}) and e["tid"] == 1
    ]
    assert {"forward 0", "backward 0", "forward 47", "backward 47"} <= set(micro_batches)


def test_kernels_are_left_out_of_long_steps_but_tasks_never() -> None:
    prediction = from_catalogue(trace=True)
    slices = [[e for e in trace_events(prediction, most) if e["ph"] == "X"] for most in (0, 1000)]
    assert all("args" in event for event in slices[0])
    kernels = [event for event in slices[1] if "args" not in event]
    assert 0 < len(kernels) <= 1000
    assert len(slices[1]) == len(slices[0]) + len(kernels)


def test_the_file_is_json_and_the_same_twice(tmp_path: Path) -> None:
    prediction: Prediction = from_catalogue(trace=True)
    for name in ("one.json", "two.json"):
        write_trace(prediction, tmp_path / name, most_kernels=500)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    tree = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))
    assert tree["displayTimeUnit"] == "ms" and len(tree["traceEvents"]) > 1000
    last = max(end_of(event) for event in tree["traceEvents"] if event["ph"] == "X")
    assert last == pytest.approx(prediction.run.makespan * 1e6, abs=NANOSECOND)


def test_a_prediction_without_rates_cannot_be_written_as_a_trace(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trace=True"):
        write_trace(from_catalogue(), tmp_path / "trace.json")


@given(st.integers(0, 1000), st.integers(MOST_POINTS + 1, 3 * MOST_POINTS))
@settings(max_examples=20, deadline=None)
def test_thinning_keeps_the_amount_and_the_maximum(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    use = np.append(random.uniform(0.0, 10.0, size), 0.0)
    times = np.concatenate([[0.0], np.cumsum(random.uniform(0.0, 1.0, size))])
    at, thin = thinned(times, use, float(times[-1]))
    assert len(at) <= MOST_POINTS + 1
    amounts = [float((u[:-1] * np.diff(t)).sum()) for t, u in ((times, use), (at, thin))]
    assert amounts[1] == pytest.approx(amounts[0], rel=1e-9)
    assert thin.max() <= use.max() * (1 + 1e-9)
