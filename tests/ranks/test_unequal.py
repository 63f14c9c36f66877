"""Stages of unequal degrees: ranks stand stage by stage, and between stages every byte that is needed comes once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.ranks.grid import Grid
from simulator.ranks.unequal import UnequalStages

DEGREES = st.integers(1, 6)
LAYOUTS = st.tuples(st.integers(1, 2), st.lists(st.tuples(DEGREES, DEGREES), min_size=2, max_size=4)).map(
    lambda drawn: UnequalStages(tuple(Grid(tp=tp, dp=dp, cp=drawn[0]) for tp, dp in drawn[1]))
)


def received(
    layout: UnequalStages, source: int, target: int, held: str, place: int = 1
) -> dict[int, Fraction]:
    """By rank that receives (or, with `place` 0, sends): its share of the tensor in all."""
    total: dict[int, Fraction] = {}
    for one in layout.crossings(source, target, held):  # type: ignore[arg-type]
        for rank in layout.groups(one.axis)[:, place].tolist():
            total[rank] = total.get(rank, Fraction(0)) + one.share
    return total


@given(LAYOUTS, st.sampled_from(["tp", "cp", "dp", "dp_cp", "ep", "edp"]))
def test_groups_of_all_stages_partition_the_ranks(layout: UnequalStages, axis: str) -> None:
    groups = [layout.groups(layout.axis_at(axis, stage)) for stage in range(len(layout.stages))]
    assert sorted(np.concatenate([one.ravel() for one in groups]).tolist()) == list(range(layout.world))
    for stage, one in enumerate(groups):
        assert set(layout.coordinate("pp")[one].ravel().tolist()) == {stage}


@given(LAYOUTS)
def test_every_byte_of_a_cut_tensor_is_sent_once_by_who_has_it_to_who_needs_it(layout: UnequalStages) -> None:
    for place, stage in ((0, 0), (1, 1)):
        share = received(layout, 0, 1, "cut", place)
        grid = layout.stages[stage]
        assert share == {
            rank: Fraction(1, grid.tp * grid.dp) for rank in layout.ranks(stage).ravel().tolist()
        }


@given(LAYOUTS)
def test_copies_come_once_to_every_rank(layout: UnequalStages) -> None:
    copied, rows = (received(layout, 0, 1, held) for held in ("copied", "rows"))
    ranks, grid = layout.ranks(1).ravel().tolist(), layout.stages[1]
    assert copied == {rank: Fraction(1, grid.dp) for rank in ranks}
    assert rows == {rank: Fraction(1, grid.tp) for rank in ranks}


@given(LAYOUTS)
def test_a_cut_tensor_goes_back_the_way_it_came(layout: UnequalStages) -> None:
    there, back = (
        {
            (*(pair if (source, target) == (0, 1) else pair[::-1]), one.share)
            for one in layout.crossings(source, target, "cut")
            for pair in layout.groups(one.axis).tolist()
        }
        for source, target in ((0, 1), (1, 0))
    )
    assert there == back


@given(DEGREES, DEGREES, st.integers(1, 2), st.sampled_from(["cut", "copied", "rows"]))
def test_equal_stages_send_rank_by_rank(tp: int, dp: int, cp: int, held: str) -> None:
    grid = Grid(tp=tp, cp=cp, dp=dp)
    layout = UnequalStages((grid, grid))
    (one,) = layout.crossings(0, 1, held)  # type: ignore[arg-type]
    ahead = Grid(tp=tp, cp=cp, dp=dp, pp=2).pipeline_pairs(1)
    first = ahead[ahead[:, 0] < grid.world]
    assert sorted(layout.groups(one.axis).tolist()) == sorted(first.tolist())
