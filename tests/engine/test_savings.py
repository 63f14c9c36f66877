"""Each exact saving of the engine, and all together, leave every time as it is without."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.engine import PLAIN, EngineOptions, Timeline, execute
from simulator.program.program import Lane, Phase, Program, Resource, Task
from tests.engine.programs import programs

SAVINGS = ("private", "dominance", "merge_phases", "solo_chains", "company", "incremental", "cache")


def assert_same(ours: Timeline, reference: Timeline) -> None:
    for name in ("start", "end", "lane_busy", "use"):
        np.testing.assert_allclose(getattr(ours, name), getattr(reference, name), rtol=1e-9, atol=1e-9)
    for name in ("task", "phase", "start", "work_start", "end"):
        np.testing.assert_allclose(
            getattr(ours.spans, name), getattr(reference.spans, name), rtol=1e-9, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("saving", SAVINGS)
@given(program=programs())
def test_each_saving_alone_changes_nothing(saving: str, program: Program) -> None:
    assert_same(execute(program, options=replace(PLAIN, **{saving: True})), execute(program, options=PLAIN))


@settings(max_examples=150)
@given(program=programs())
def test_all_savings_together_change_nothing(program: Program) -> None:
    assert_same(execute(program), execute(program, options=PLAIN))


@pytest.mark.parametrize("saving", SAVINGS)
@given(program=programs())
def test_leaving_one_saving_out_changes_nothing(saving: str, program: Program) -> None:
    assert_same(execute(program, options=replace(EngineOptions(), **{saving: False})), execute(program))


def kernels_beside_a_collective(num_layers: int, fabric: float) -> Program:
    """Layers of a kernel and a collective inside the node, while another one crosses the network on the same GPU."""
    kernel = Phase("compute", "kernel", 1.0, ((0, 1.0),), weight=1e-13)
    inside = Phase("tp", "inside", 1.0, ((0, 0.1), (1, 1.0)), latency=0.1)
    across = Phase("dp", "across", 3.0 * num_layers, ((0, 0.1), (1, 0.2), (2, 1.0)))
    return Program(
        resources=[
            Resource("gpu", "gpu", 1.0),
            Resource("nvlink", "scale_up", 3.0),
            Resource("nic", "nic", fabric),
        ],
        lanes=[Lane("compute", 0), Lane("dp", 0)],
        tasks=[Task((kernel, inside) * num_layers, (0,)), Task((across,), (1,))],
        queues=[[0], [1]],
    )


@pytest.mark.parametrize(("fabric", "few"), [(0.5, True), (5.0, False)])
def test_a_chain_is_one_event_beside_what_it_does_not_slow_down(fabric: float, few: bool) -> None:
    """The collective is limited by the network; where that is fast, by what the chain leaves of the node's links."""
    program = kernels_beside_a_collective(50, fabric)
    ours, reference = execute(program), execute(program, options=PLAIN)
    assert_same(ours, reference)
    assert (ours.num_events < 10) == few
    assert reference.num_events > 100


def test_what_has_been_executed_leaves_nothing_to_the_garbage_collector() -> None:
    program = kernels_beside_a_collective(5, 5.0)
    gc.collect()
    gc.disable()
    try:
        execute(program)
        assert gc.collect() == 0
    finally:
        gc.enable()
