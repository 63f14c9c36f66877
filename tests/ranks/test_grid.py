"""The grid places every rank once, and every axis partitions the ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.ranks.grid import AXES, Grid


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    tp, cp, dp, pp = (draw(st.sampled_from([1, 2, 3, 4])) for _ in AXES)
    ep = draw(st.sampled_from([d for d in range(1, dp * cp + 1) if dp * cp % d == 0]))
    return Grid(tp, cp, dp, pp, ep, tuple(draw(st.permutations(AXES))))


@given(grids(), st.sampled_from([*AXES, "dp_cp", "ep", "edp", "world", "model"]))
def test_groups_of_an_axis_partition_the_ranks(grid: Grid, axis: str) -> None:
    groups = grid.groups(axis)
    assert groups.shape == (grid.world // grid.size(axis), grid.size(axis))
    assert sorted(groups.ravel().tolist()) == list(range(grid.world))


@given(grids(), st.sampled_from(AXES))
def test_members_of_a_group_differ_in_that_axis_alone(grid: Grid, axis: str) -> None:
    groups = grid.groups(axis)
    for other in AXES:
        place = grid.coordinate(other)[groups]
        expected = np.arange(grid.size(axis)) if other == axis else place[:, :1]
        assert np.array_equal(place, np.broadcast_to(expected, place.shape))


@given(grids())
def test_the_first_axis_of_the_order_has_neighbouring_ranks(grid: Grid) -> None:
    groups = grid.groups(grid.order[0])
    assert np.all(np.diff(groups, axis=1) == 1)


@given(grids())
def test_pipeline_pairs_lead_to_the_next_stage_with_all_else_equal(grid: Grid) -> None:
    pairs = grid.pipeline_pairs(1)
    stage = grid.coordinate("pp")
    assert np.array_equal(stage[pairs[:, 1]], (stage[pairs[:, 0]] + 1) % grid.pp)
    for axis in ("tp", "cp", "dp"):
        assert np.array_equal(grid.coordinate(axis)[pairs[:, 0]], grid.coordinate(axis)[pairs[:, 1]])


@given(grids())
def test_expert_groups_cross_only_their_complement(grid: Grid) -> None:
    for group in grid.groups("ep"):
        for other in grid.groups("edp"):
            assert len(set(group) & set(other)) <= 1
