"""Edges of many groups at once: the same as one by one, whatever the layout, and fast for large groups."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.collectives import GroupShape, edges, loads
from simulator.costs.collectives.patterns import PATTERNS, REDUCER
from simulator.costs.collectives.traffic import double_tree, tree_parents

ANY_LAYOUT = [name for name in PATTERNS if name not in ("pair", "hierarchical")]


def totals(found, num_gpus: int) -> np.ndarray:
    """[GPU + 1, GPU + 1] share from each GPU to each; the last row and column are reducers."""
    matrix = np.zeros((num_gpus + 1, num_gpus + 1))
    np.add.at(matrix, (found.source, found.destination), found.share)
    return matrix


@given(
    pattern=st.sampled_from(ANY_LAYOUT),
    shape=st.tuples(st.integers(1, 4), st.integers(2, 6)),
    seed=st.integers(0, 1000),
)
def test_edges_of_many_groups_are_those_of_each_group(
    pattern: str, shape: tuple[int, int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    members = random.permutation(shape[0] * shape[1]).reshape(shape)
    node_of = random.integers(0, 3, members.size)
    together = edges(pattern, members, node_of)
    for index, row in enumerate(members):
        alone = edges(pattern, row[None], node_of)
        mine = together.group == index
        for column in ("source", "destination", "share"):
            np.testing.assert_array_equal(getattr(together, column)[mine], getattr(alone, column))


@given(pattern=st.sampled_from(ANY_LAYOUT), seed=st.integers(0, 1000))
def test_renaming_gpus_renames_the_edges_and_nothing_else(pattern: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    n, node_of = 6, random.integers(0, 3, 6)
    names = random.permutation(n)
    renamed_nodes = np.empty(n, dtype=np.int64)
    renamed_nodes[names] = node_of
    before = edges(pattern, np.arange(n), node_of)
    after = edges(pattern, names, renamed_nodes)
    ids = np.append(names, REDUCER)
    np.testing.assert_array_equal(ids[before.source], after.source)
    np.testing.assert_array_equal(ids[before.destination], after.destination)
    np.testing.assert_array_equal(before.share, after.share)


def test_a_ring_over_nodes_sends_one_part_in_g_through_each_nic() -> None:
    found = edges("ring", np.arange(8), np.arange(8) // 4)
    matrix = totals(found, 8)[:8, :8]
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)  # every rank sends the volume
    assert matrix[0, 1] == pytest.approx(3 / 4)
    assert matrix[0, 4] == matrix[4, 0] == pytest.approx(1 / 4)  # to its counterpart
    assert matrix[3, 0] == pytest.approx(3 / 4)


def test_all_to_all_between_nodes_keeps_to_counterparts_with_the_same_bytes() -> None:
    nodes, per_node = 3, 4
    found = edges("direct", np.arange(12), np.arange(12) // per_node)
    matrix = totals(found, 12)[:12, :12]
    np.testing.assert_allclose(matrix.sum(axis=0), 11.0)
    np.testing.assert_allclose(matrix.sum(axis=1), 11.0)
    crossing = matrix[:4, 4:]
    assert crossing.sum() == pytest.approx(per_node * per_node * (nodes - 1))
    assert np.count_nonzero(crossing) == per_node * (nodes - 1)


def test_all_to_all_of_thousands_of_ranks_takes_a_moment() -> None:
    n = 4096
    start = time.perf_counter()
    found = edges("direct", np.arange(n), np.arange(n) // 8)
    assert time.perf_counter() - start < 5.0
    assert len(found) == n * 7 + n * (n // 8 - 1)
    assert found.share.sum() == pytest.approx(n * (n - 1))


@pytest.mark.parametrize(("n", "nodes"), [(8, 1), (12, 3), (64, 8)])
def test_the_closed_form_of_all_to_all_loads_is_what_its_edges_add_up_to(n: int, nodes: int) -> None:
    shape = GroupShape(num_ranks=n, num_nodes=nodes)
    matrix = totals(edges("direct", np.arange(n), shape.node_of), n)[:n, :n]
    inside = shape.node_of[:, None] == shape.node_of[None, :]
    scale_up = (matrix * inside).sum(axis=1).max()
    nic = max((matrix * ~inside)[shape.node_of == node].sum() for node in range(nodes))
    assert loads("direct", shape) == (pytest.approx(scale_up), pytest.approx(nic))


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4, 5, 7, 8, 12, 33, 128])
def test_every_node_of_a_tree_has_a_path_of_logarithmic_length_to_the_root(num_nodes: int) -> None:
    for parents in double_tree(num_nodes):
        for node in range(num_nodes):
            hops = 0
            while parents[node] >= 0:
                node, hops = parents[node], hops + 1
            assert hops <= (num_nodes - 1).bit_length()
        assert (parents == -1).sum() == 1


@pytest.mark.parametrize("num_nodes", [2, 3, 4, 5, 8, 12, 33])
def test_hardly_any_node_is_inner_in_both_trees(num_nodes: int) -> None:
    first, second = double_tree(num_nodes)
    inner = [{int(p) for p in parents if p >= 0} for parents in (first, second)]
    assert len(inner[0] & inner[1]) <= (num_nodes % 2)
    assert (np.bincount(tree_parents(num_nodes)[1:], minlength=num_nodes) <= 2 + (num_nodes & 1)).all()


def test_unknown_patterns_and_impossible_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown pattern 'butterfly'"):
        edges("butterfly", np.arange(4), np.zeros(4))
    with pytest.raises(ValueError, match="two ends, not 3"):
        edges("pair", np.arange(3), np.zeros(3))
    with pytest.raises(ValueError, match=r"equally many ranks on every node, got \[1, 2\]"):
        edges("hierarchical", np.arange(3), np.array([0, 0, 1]))
