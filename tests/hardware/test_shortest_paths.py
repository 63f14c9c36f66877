"""Shortest paths of arbitrary networks, against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.hardware.shortest_paths import ShortestPaths

EDGES = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] != e[1]), min_size=1)


def network(edges: set[tuple[int, int]]) -> tuple[ShortestPaths, nx.DiGraph]:
    tail, head = np.array(sorted(edges)).T
    return ShortestPaths(tail, head, np.arange(len(tail)) + 100, 8), nx.DiGraph(edges)


@given(edges=EDGES, start=st.integers(0, 7), goal=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_even_shares_flow_along_shortest_paths_only_and_lose_nothing(
    edges: set[tuple[int, int]], start: int, goal: int
) -> None:
    paths, graph = network(edges)
    graph.add_nodes_from(range(8))
    if not nx.has_path(graph, start, goal):
        with pytest.raises(ValueError, match="without a path"):
            paths.even_shares(start, goal)
        return
    links, shares = paths.even_shares(start, goal)
    length = nx.shortest_path_length(graph, start, goal)
    assert shares.sum() == pytest.approx(length)
    balance = np.zeros(8)
    np.add.at(balance, paths.head[links - 100], shares)
    np.add.at(balance, paths.tail[links - 100], -shares)
    expected = np.zeros(8)
    if start != goal:
        expected[[start, goal]] = -1.0, 1.0
    np.testing.assert_allclose(balance, expected, atol=1e-12)


def test_a_diamond_splits_in_half() -> None:
    paths, _ = network({(0, 1), (0, 2), (1, 3), (2, 3)})
    assert paths.even_shares(0, 3)[1].tolist() == [0.5] * 4


def test_a_hashed_flow_takes_one_of_the_shortest_paths_and_many_take_all() -> None:
    paths, _ = network({(0, 1), (0, 2), (1, 3), (2, 3)})
    flows = np.arange(200)
    blocks = paths.hashed(np.zeros(200, dtype=np.int64), np.full(200, 3), flows, seed=0)
    assert [len(link) for _, link, _ in blocks] == [2] * 200
    first_hops = np.bincount([int(link[0]) - 100 for _, link, _ in blocks])
    assert first_hops.sum() == 200 and first_hops[:2].min() > 70
