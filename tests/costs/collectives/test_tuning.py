"""NCCL's own model: where it changes protocol on one node and algorithm across nodes, by its tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.collectives import GroupShape, collective_cost, collective_seconds, load_calibration
from simulator.costs.collectives.tuning import Tuner

ORDER = ("ll", "ll128", "simple")


@pytest.mark.parametrize(
    ("name", "op", "ranks", "in_network", "below", "above"),
    [
        # measured on both sides: the time per byte jumps up from one size to the next (aiconfigurator, tune rows)
        ("nccl-a100-nvswitch", "all_gather", 2, False, "1 MiB ll", "2 MiB simple"),
        ("nccl-a100-nvswitch", "reduce_scatter", 4, False, "1 MiB ll", "2 MiB simple"),
        ("nccl-a100-nvswitch", "all_reduce", 8, False, "16 MiB ll128", "32 MiB simple"),
        ("nccl-h100-nvswitch", "all_gather", 4, False, "2 MiB ll", "4 MiB simple"),
        ("nccl-h100-nvswitch", "all_gather", 8, False, "16 MiB ll128", "32 MiB simple"),
        ("nccl-h100-nvswitch", "all_reduce", 8, True, "0.5 MiB ll", "2 MiB simple"),
        ("nccl-b200-nvswitch", "all_reduce", 2, False, "2 MiB ll", "4 MiB simple"),
        ("nccl-gb200-nvl", "all_gather", 4, False, "4 MiB ll", "16 MiB simple"),
    ],
)
def test_it_changes_protocol_between_measured_sizes(
    name: str, op: str, ranks: int, in_network: bool, below: str, above: str
) -> None:
    tuner = load_calibration(name).tuner
    assert tuner is not None
    for side in (below, above):
        size, _, protocol = side.split()
        assert tuner.protocol(op, float(size) * 2**20, ranks, in_network) == protocol


def test_two_ranks_leave_ll_where_its_latency_no_longer_pays() -> None:
    """A100, all-reduce: 7.8 us at 87.7 GB/s against 15.2 us at 240 GB/s; LL128 begins later than both."""
    tuner = Tuner(ring=240e9, ll=87.7e9, ll128=240e9)
    change = 7.4e-6 / (1 / 87.7e9 - 1 / 240e9)
    assert tuner.protocol("all_reduce", 0.999 * change, 2, False) == "ll"
    assert tuner.protocol("all_reduce", 1.001 * change, 2, False) == "simple"


def test_it_has_no_say_in_other_operations() -> None:
    assert Tuner(ring=240e9, ll=87.7e9, ll128=240e9).protocol("all_to_all", 1e6, 8, False) is None


@given(
    ranks=st.integers(2, 64),
    op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    sizes=st.lists(st.floats(1.0, 1e10), min_size=2, max_size=2).map(sorted),
    ring=st.floats(1e10, 1e12),
    in_network=st.booleans(),
)
def test_larger_messages_never_take_a_protocol_for_smaller_ones(
    ranks: int, op: str, sizes: list[float], ring: float, in_network: bool
) -> None:
    tuner = Tuner(ring=ring, ll=ring / 3, ll128=ring, in_network=0.8)
    small, large = (tuner.protocol(op, size, ranks, in_network) for size in sizes)
    assert ORDER.index(str(small)) <= ORDER.index(str(large))


def across(nodes: int, per_node: int, nics: int, rate: float) -> GroupShape:
    return GroupShape(
        num_ranks=nodes * per_node,
        num_nodes=nodes,
        scale_up_bandwidth=300e9,
        nic_bandwidth=nics * rate,
        num_nics=nics,
    )


@pytest.mark.parametrize(
    ("nodes", "per_node", "nics", "rate", "size", "ring"),
    [
        # 4 channels of 24 GB/s: rings 78 us + size / 42.7 GB/s (LL128), trees of two 48.5 us + size / 24 GB/s there
        (2, 8, 4, 25e9, 2**20, False),
        (2, 8, 4, 25e9, 2**21, True),
        # large: 24 GB/s x 16/30 against 23.6 GB/s / 2, although a tree of two sends half the bytes of a ring
        (2, 8, 4, 25e9, 2**30, True),
        (2, 8, 8, 25e9, 2**30, True),
        # NICs of half the rate: 12 GB/s x 16/30 against 0.92 x 24 GB/s / 2, since a tree counts what is inside
        (2, 8, 4, 12.5e9, 2**30, False),
        # more nodes: 24 GB/s x 32/62 against 17.8 GB/s / 2
        (4, 8, 4, 25e9, 2**30, True),
        (4, 8, 4, 25e9, 2**20, False),
    ],
)
def test_rings_or_trees_across_nodes_by_its_tables(
    nodes: int, per_node: int, nics: int, rate: float, size: float, ring: bool
) -> None:
    tuner = load_calibration("nccl-a100-nvswitch").tuner
    assert tuner is not None
    assert tuner.prefers_ring(size, across(nodes, per_node, nics, rate)) is ring


def test_without_tables_for_networks_it_has_no_say_across_nodes() -> None:
    assert not Tuner(ring=240e9, ll=87.7e9, ll128=240e9).prefers_ring(1e9, across(2, 8, 4, 25e9))


@given(
    nodes=st.integers(2, 512),
    per_node=st.integers(1, 8),
    nics=st.integers(1, 8),
    rate=st.sampled_from([12.5e9, 25e9, 50e9]),
    sizes=st.lists(st.floats(1.0, 1e12), min_size=2, max_size=2).map(sorted),
)
def test_larger_messages_never_go_back_to_a_tree(
    nodes: int, per_node: int, nics: int, rate: float, sizes: list[float]
) -> None:
    library, shape = load_calibration("nccl-a100-nvswitch"), across(nodes, per_node, nics, rate)
    assert library.tuner is not None
    small, large = (library.tuner.prefers_ring(size, shape) for size in sizes)
    assert large or not small
    costs = [collective_cost("all_reduce", size, shape, library) for size in sizes]
    assert collective_seconds(costs[0], shape) <= collective_seconds(costs[1], shape) * (1.0 + 1e-9)
    assert costs[1].algorithm == "ring" or not large
