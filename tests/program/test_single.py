"""One collective over a whole cluster: the closed form, folding, and stragglers that set the pace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simulator.costs.collectives import collective_cost, collective_seconds
from simulator.engine.engine import execute
from simulator.hardware.topology import build_topology
from simulator.program.group_shapes import group_shapes
from simulator.program.program import Program
from simulator.program.single import collective_program
from tests.program.scenarios import LIBRARY, cluster

SIZE = 1e9


def seconds(program: Program) -> float:
    return execute(program).makespan


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (4, 1, 1), (4, 4, 4), (4, 4, 2)])
def test_alone_it_takes_the_time_of_the_closed_form(op: str, shape: tuple[int, int, int]) -> None:
    machine = cluster(*shape)
    topology = build_topology(machine)
    (group,), _ = group_shapes(topology, np.arange(machine.num_gpus)[None, :])
    alone = collective_seconds(collective_cost(op, SIZE, group, LIBRARY), group)
    assert seconds(collective_program(machine, op, SIZE, LIBRARY)) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize(
    ("members", "num_nics"), [((0, 1, 2, 3), 0), (range(16), 2), ((0, 4), 1), ((0, 1, 4, 5), 1)]
)
def test_a_group_knows_the_nics_that_it_uses(members: Sequence[int], num_nics: int) -> None:
    """4 nodes of 4 GPUs, of which every two share a NIC."""
    (group,), _ = group_shapes(build_topology(cluster(4, 4, 2)), np.array([members]))
    assert group.num_nics == num_nics


@pytest.mark.parametrize("slow", [{}, {3: 0.5}, {0: 0.5, 5: 0.25, 9: 0.7}])
def test_folded_equals_unfolded(slow: dict[int, float]) -> None:
    machine = cluster(4, 4, 4)
    folded = collective_program(machine, "all_reduce", SIZE, LIBRARY, slow)
    whole = collective_program(machine, "all_reduce", SIZE, LIBRARY, slow, fold=False)
    assert seconds(folded) == pytest.approx(seconds(whole), rel=1e-9)
    assert len(folded.rank_classes) < len(whole.rank_classes) == 16


def test_the_slowest_link_sets_the_pace_of_a_ring() -> None:
    machine = cluster(8, 1, 1)
    latency = seconds(collective_program(machine, "all_reduce", 1.0, LIBRARY))
    full, half = (
        seconds(collective_program(machine, "all_reduce", SIZE, LIBRARY, slow))
        for slow in ({}, {3: 0.5, 6: 0.9})
    )
    assert half - latency == pytest.approx(2 * (full - latency), rel=1e-6)


def test_a_gpu_that_is_not_there_cannot_be_slow() -> None:
    with pytest.raises(ValueError, match="there is no GPU 99"):
        collective_program(cluster(2, 2, 2), "all_reduce", SIZE, LIBRARY, {99: 0.5})
