"""The grid places every rank once, and every axis partitions the ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.ranks.grid import AXES, Grid


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    tp, cp, dp, pp = (draw(st.sampled_from([1, 2, 3, 4])) for _ in AXES)
    etp = draw(st.sampled_from([d for d in range(1, tp + 1) if tp % d == 0]))
    plane = dp * cp * tp // etp
    ep = draw(st.sampled_from([d for d in range(1, plane + 1) if plane % d == 0]))
    return Grid(tp, cp, dp, pp, ep, tuple(draw(st.permutations(AXES))), etp)


@given(grids(), st.sampled_from([*AXES, "dp_cp", "ep", "etp", "edp", "world", "model"]))
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


@given(grids())
def test_a_copy_of_all_experts_stands_on_ep_times_etp_ranks_of_one_stage(grid: Grid) -> None:
    assert grid.size("etp") * grid.size("ep") * grid.size("edp") * grid.pp == grid.world
    stage = grid.coordinate("pp")
    for axis in ("etp", "ep", "edp"):
        groups = grid.groups(axis)
        assert np.array_equal(stage[groups], np.broadcast_to(stage[groups[:, :1]], groups.shape))


@given(grids())
def test_ranks_that_split_an_expert_are_a_part_of_a_tensor_parallel_group(grid: Grid) -> None:
    whole = [set(group) for group in grid.groups("tp").tolist()]
    assert all(any(set(group) <= other for other in whole) for group in grid.groups("etp").tolist())


def test_experts_split_like_other_layers_share_them_out_over_data_and_context() -> None:
    grid = Grid(tp=2, cp=1, dp=4, pp=1, ep=2)
    assert grid.groups("ep").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert grid.groups("edp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_experts_that_are_not_split_use_the_tensor_parallel_ranks_first() -> None:
    grid = Grid(tp=2, cp=1, dp=4, pp=1, ep=4, etp=1)
    assert grid.groups("ep").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_expert_groups_are_made_of_runs_that_share_a_node() -> None:
    grid = Grid(dp=8, ep=4, domain=2)
    assert grid.groups("ep_inside").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert grid.groups("ep_across").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_tensor_parallelism_of_three_dimensions_has_x_innermost() -> None:
    grid = Grid(tp=2, tp_x=2, tp_z=2, dp=2)
    assert grid.world == 16
    assert grid.groups("tp_x").tolist()[:2] == [[0, 1], [2, 3]]
    assert grid.groups("tp").tolist()[:2] == [[0, 2], [1, 3]]
    assert grid.groups("tp_z").tolist()[:2] == [[0, 4], [1, 5]]
    assert grid.groups("dp").tolist()[0] == [0, 8]


def test_without_experts_their_copies_are_those_of_everything_else() -> None:
    grid = Grid(tp=2, tp_x=2, tp_z=2, pp=2, cp=2, dp=3)
    assert {*map(tuple, grid.groups("edp"))} == {*map(tuple, grid.groups("dp_cp"))}
