"""Layers cut into slices: the same work and bytes, in more collectives, with less of it there at a time."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.engine import execute
from simulator.program.builder import Built, build
from simulator.program.chains import Chain, Launches
from simulator.program.program import Phase
from simulator.program.slicing import sliced
from tests.program.scenarios import LIBRARY, cluster, software, workload

PHASES = st.lists(
    st.tuples(st.sampled_from(["compute", "padding", "tp", "launch"]), st.floats(1e-6, 1.0)),
    min_size=1,
    max_size=12,
)


@given(phases=PHASES, count=st.integers(1, 7))
def test_slices_of_a_chain_do_its_work_in_equal_times_and_cut_no_collective(
    phases: list[tuple[str, float]], count: int
) -> None:
    rows = [Phase(kind, "x", work, flops=3 * work, hbm_bytes=5 * work) for kind, work in phases]
    axes = tuple("tp" if kind == "tp" else "" for kind, _ in phases)
    numbers = [sum(one == "tp" for one in axes[:index]) for index in range(len(axes))]
    pieces = tuple((number, 0) if axis else (0, 0) for axis, number in zip(axes, numbers, strict=True))
    collectives = (("tp", axes.count("tp")),) if "tp" in axes else ()
    whole = Chain(tuple(rows), axes, pieces, collectives, 1.0, 0.5, Launches(1.0, 0.5, 1.0))
    parts = sliced(whole, count)
    assert len(parts) == count
    for name in ("work", "flops", "hbm_bytes"):
        total = sum(getattr(phase, name) for part in parts for phase in part.phases)
        assert total == pytest.approx(sum(getattr(phase, name) for phase in rows), rel=1e-9)
    kernels = [sum(p.work for p in part.phases if p.kind in ("compute", "padding")) for part in parts]
    assert kernels == pytest.approx([sum(kernels) / count] * count, rel=1e-9, abs=1e-12)
    carried = [part.axes.count("tp") for part in parts]
    assert carried == [dict(part.collectives).get("tp", 0) for part in parts]
    assert sum(carried) == axes.count("tp")
    for part in parts:
        found = [number for axis, (number, _) in zip(part.axes, part.pieces, strict=True) if axis]
        assert found == list(range(len(found)))


def run(slices: int, **changes: Any) -> tuple[Built, float, dict[str, float], float]:
    """(program, step seconds, most bytes by kind, bytes out of a NIC)"""
    zero3 = {"slices": slices, **changes.pop("zero3", {})}
    job = workload(layers=4, hidden=512, zero=3, zero3=zero3, **{"global_batch": 16, **changes})
    built = build(cluster(8, 1, 1), job, software(), LIBRARY)
    timeline = execute(built.program)
    peaks: dict[str, float] = {}
    for kind in ("gathered parameters", "whole gradients", "activations"):
        changed = (c.amount for _, c in timeline.memory_changes() if c.kind == kind and c.rank_class == 0)
        peaks[kind] = max(accumulate(changed))
    use = timeline.use.tolist()
    sent = next(u for r, u in zip(built.program.resources, use, strict=True) if r.kind == "nic_out")
    return built, timeline.makespan, peaks, sent


@pytest.mark.parametrize("slices", [2, 3, 8])
def test_slices_move_the_same_bytes_in_more_collectives_and_hold_a_part_at_a_time(slices: int) -> None:
    whole, parts = run(1), run(slices)
    assert parts[3] == pytest.approx(whole[3], rel=0.02)  # less is still there when backward begins
    for kind in ("gathered parameters", "whole gradients"):
        assert parts[2][kind] == pytest.approx(whole[2][kind] / slices, rel=1e-3)
    assert parts[2]["activations"] == pytest.approx(whole[2]["activations"], rel=1e-9)
    labels = [[task.label for task in built.program.tasks] for built in (whole[0], parts[0])]
    assert labels[1].count("reduce gradients") == slices * labels[0].count("reduce gradients")
    flops = [sum(p.flops for t in built.program.tasks for p in t.phases) for built in (whole[0], parts[0])]
    assert flops[1] == pytest.approx(flops[0], rel=1e-9)


def test_slices_cost_nothing_where_nothing_moves() -> None:
    jobs = [workload(layers=4, zero=3, zero3={"slices": slices}, global_batch=2) for slices in (1, 4)]
    built = [build(cluster(1, 1, 1), job, software(), LIBRARY) for job in jobs]
    whole, parts = (execute(one.program).makespan for one in built)
    assert parts == pytest.approx(whole, rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(slices=st.integers(2, 5), tp=st.sampled_from([1, 2]), prefetch=st.integers(0, 3))
def test_collectives_of_tensor_parallelism_meet_in_slices_too(slices: int, tp: int, prefetch: int) -> None:
    job = workload(layers=2, zero=3, tp=tp, zero3={"slices": slices, "prefetch": prefetch}, global_batch=16)
    built = build(cluster(2, 4, 4), job, software(), LIBRARY)
    assert execute(built.program).makespan > 0.0
