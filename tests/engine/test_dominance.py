"""Leaving out resources that can never be the limit changes no rate, and leaves out what it should."""

from __future__ import annotations

from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import execute, max_min
from simulator.engine.dominance import dominated
from tests.engine.building import program, work


@st.composite
def paths(draw: st.DrawFn):
    """Flows over stretches of links: the links of a stretch have the same users, and sometimes the same shares."""
    stretches = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    capacities, links_of = [], []
    for length in stretches:
        links_of.append(range(len(capacities), len(capacities) + length))
        capacities += [draw(st.sampled_from((0.5, 1.0, 2.0, 3.0))) for _ in range(length)]
    draws = []
    for _ in range(draw(st.integers(1, 6))):
        taken = draw(st.lists(st.integers(0, len(stretches) - 1), unique=True, min_size=1))
        draws.append(
            tuple(
                (link, draw(st.sampled_from((0.5, 1.0, 1.0, 2.0))))
                for stretch in sorted(taken)
                for link in links_of[stretch]
            )
        )
    return capacities, draws


@given(paths=paths(), weights=st.lists(st.sampled_from((0.5, 1.0, 3.0)), min_size=6, max_size=6))
def test_rates_are_the_same_without_the_dominated(paths, weights) -> None:
    capacities, draws = paths
    gone = dominated(draws, capacities, kept=())
    fewer = [tuple(draw for draw in drawn if draw[0] not in gone) for drawn in draws]
    assert all(fewer)
    caps = [inf] * len(draws)
    np.testing.assert_allclose(
        max_min(capacities, fewer, weights[: len(draws)], caps),
        max_min(capacities, draws, weights[: len(draws)], caps),
        rtol=1e-12,
    )


def test_the_links_of_a_path_come_down_to_the_narrowest() -> None:
    path = ((0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0))
    assert dominated([path, path], [4.0, 1.0, 2.0, 1.0], kept=()) == {0, 2, 3}


def test_resources_with_other_users_or_changing_capacity_stay() -> None:
    assert dominated([((0, 1.0), (1, 1.0)), ((1, 1.0),)], [4.0, 1.0], kept=()) == set()
    assert dominated([((0, 1.0), (1, 1.0))], [4.0, 1.0], kept={0}) == set()


def test_resources_that_may_each_be_the_limit_both_stay() -> None:
    """The first flow loads link 0 more, the second link 1."""
    assert dominated([((0, 2.0), (1, 1.0)), ((0, 1.0), (1, 2.0))], [1.0, 1.0], kept=()) == set()


def test_bytes_are_counted_on_links_left_out_as_well() -> None:
    timeline = execute(program([1.0, 5.0], work(2.0, 0, 1), work(3.0, 0, 1)))
    assert timeline.use.tolist() == [5.0, 5.0]
    assert timeline.makespan == 5.0
