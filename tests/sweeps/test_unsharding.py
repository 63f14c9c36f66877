"""What stays unsharded under a memory limit: the more memory the faster, from ZeRO-3 to ZeRO-2 and plain replicas."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.description import DescriptionError
from simulator.engine.engine import execute
from simulator.hardware.cluster import Cluster
from simulator.program.builder import blueprint, build
from simulator.program.sharding import gathered_bytes, gathers, kept_units
from simulator.report.text import plain
from simulator.results.prediction import Prediction
from simulator.simulation import simulate
from simulator.sweeps.objectives import objective
from simulator.sweeps.search import search
from tests.program.scenarios import LIBRARY, cluster, node, software, workload

GPUS = 8


def machine(capacity: float = 80e9) -> Cluster:
    """Two nodes of four GPUs behind slow NICs, so that gathers are what takes time."""
    described = node(4, 1, memory={"capacity": capacity, "bandwidth": 2e12})
    described["nic"] = {**described["nic"], "bandwidth": 2e9}
    fabric = {"kind": "single_switch", "hop_latency": 5e-7}
    return Cluster.model_validate({"name": "slow", "node": described, "num_nodes": 2, "fabric": fabric})


def predicted(capacity: float = 80e9, batches: int = 2, **zero3: Any) -> Prediction:
    shapes = {"layers": 6, "hidden": 1024, "vocab": 4096}
    job = workload(global_batch=batches * GPUS, zero=3, zero3=zero3, parameter_dtype="bf16", **shapes)
    return simulate(machine(capacity), job)


@pytest.mark.parametrize("key", ["unsharded", "fraction"])
def test_more_memory_is_never_slower_and_never_overfilled(key: str) -> None:
    sharded = predicted()
    nothing = predicted(**{key: {"unsharded": 1e12, "fraction": 0.0}[key]})
    low, high = sharded.memory.peak_bytes, nothing.memory.peak_bytes
    found = [
        predicted(**{key: "auto"}, memory_limit=low + part * (high - low)) for part in (0, 0.2, 0.5, 0.8, 1)
    ]
    for less, more in pairwise(found):
        assert more.step_time_s <= less.step_time_s * (1 + 1e-9)
    for one in found:
        assert one.memory.peak_bytes <= one.meta["unsharding"]["limit_bytes"] * (1 + 1e-9)
    assert found[0].step_time_s == pytest.approx(sharded.step_time_s, rel=1e-9)
    assert found[-1].step_time_s == pytest.approx(nothing.step_time_s, rel=1e-9)
    assert found[-1].step_time_s < 0.9 * found[0].step_time_s


@pytest.mark.parametrize("key", ["unsharded", "fraction"])
def test_one_level_more_would_not_fit(key: str) -> None:
    limit = (predicted().memory.peak_bytes + predicted(**{key: "auto"}).memory.peak_bytes) / 2
    found = predicted(**{key: "auto"}, memory_limit=limit)
    choice = found.meta["unsharding"]
    assert 0 < choice["level"] == choice["highest"] < choice["levels"]
    assert choice["tried"] <= 6
    block = 1.02 * 12 * 1024**2 * 2  # bytes gathered, with norms and biases
    more = {"unsharded": choice["value"] + block, "fraction": choice["value"] - 1 / 6}[key]
    assert predicted(**{key: more}).memory.peak_bytes > limit
    assert found.meta["plan"]["zero3"][key] == pytest.approx(choice["value"])
    assert f"plan.zero3.{key}" in plain(found)


def test_the_memory_of_the_gpu_is_the_limit_where_none_is_given() -> None:
    everything = predicted(unsharded=1e12).memory.peak_bytes
    found = predicted(everything * 0.95, unsharded="auto")
    assert found.memory.fits
    assert 0 < found.meta["unsharding"]["level"] < found.meta["unsharding"]["levels"]


def test_a_step_that_fits_nowhere_is_a_result_and_a_limit_that_nothing_fits_is_refused() -> None:
    peak = predicted().memory.peak_bytes
    found = predicted(peak * 0.9, unsharded="auto")
    assert not found.memory.fits
    assert found.memory.shortfall_bytes == pytest.approx(peak * 0.1, rel=1e-6)
    with pytest.raises(DescriptionError, match=rf"memory_limit: needs {peak / 1e9:.1f} GB"):
        predicted(unsharded="auto", memory_limit=peak * 0.9)


def test_search_asks_for_a_number() -> None:
    job = workload(zero=3, zero3={"unsharded": "auto"})
    with pytest.raises(DescriptionError, match=r"plan\.zero3\.unsharded: search needs a number"):
        search(machine(), job, objective("step_time", machine()))


@pytest.mark.parametrize("batches", [1, 3])
def test_with_everything_unsharded_a_step_is_that_of_zero_2(batches: int) -> None:
    """Every layer is gathered once, behind the first forward; gradients are summed after each micro-batch."""
    shapes = {"layers": 6, "hidden": 512, "global_batch": batches * GPUS, "parameter_dtype": "bf16"}
    profile = software(overlap={"dp_gradients": True, "dp_parameters": True, "tp": True, "pp": True})
    three = workload(zero=3, zero3={"unsharded": 1e12, "prefetch": 100}, **shapes)
    two = workload(zero=2, bucket_size=1.0, **shapes)
    hardware = cluster(2, 4, 4)
    times = [execute(build(hardware, job, profile, LIBRARY).program).makespan for job in (three, two)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(part=st.floats(0.05, 0.95), ep=st.sampled_from([1, 2, 4, 8]), dense=st.integers(0, 2))
def test_what_is_kept_saves_all_but_one_layer_of_the_most_that_could_be(
    part: float, ep: int, dense: int
) -> None:
    """Against every choice of layers, of which those with experts are gathered over fewer ranks."""
    job = workload(family="moe", layers=4, zero=3, ep=ep, global_batch=GPUS)
    job = job.model_copy(update={"model": job.model.model_copy(update={"dense_layers": dense})})
    setting = blueprint(cluster(2, 4, 4), job, software(), LIBRARY).setting
    (content,) = setting.content[0]
    units = content.units[:-1]  # the last one stays from forward to backward in any case
    sizes = [gathered_bytes(setting, unit) for unit in units]
    saved = [
        sum(count * (1 - 1 / setting.grid.size(axis)) for axis, count in gathers(setting, unit, "forward"))
        for unit in units
    ]
    budget = part * sum(sizes)
    zero3 = setting.plan.zero3.model_copy(update={"unsharded": budget})
    changed = job.model_copy(update={"plan": job.plan.model_copy(update={"zero3": zero3})})
    setting = blueprint(cluster(2, 4, 4), changed, software(), LIBRARY).setting
    kept = [position for position in kept_units(setting, content.units, True) if position < len(units)]
    assert sum(sizes[position] for position in kept) <= budget
    every = (chosen for count in range(len(units) + 1) for chosen in combinations(range(len(units)), count))
    best = max(
        sum(saved[one] for one in chosen) for chosen in every if sum(sizes[one] for one in chosen) <= budget
    )
    assert sum(saved[position] for position in kept) > best - max(saved)
