"""Gloo's collectives take as long as their messages do when played out with fair sharing and requests that queue."""

from __future__ import annotations

from itertools import permutations

import pytest

from simulator.costs.collectives import GroupShape, collective_cost, collective_seconds, load_calibration
from simulator.costs.collectives.gloo_all_to_all import rounds
from simulator.costs.collectives.gloo_broadcast import children, last_arrival
from simulator.engine.fair_sharing import max_min

RATE = 12.5e6


def seconds(op: str, size: float, ranks: int) -> float:
    group = GroupShape(num_ranks=ranks, num_nodes=ranks, nic_bandwidth=RATE)
    return collective_seconds(collective_cost(op, size, group, load_calibration("gloo-tcp")), group)


def played(
    messages: set[tuple[int, int]], after: dict[tuple[int, int], tuple[int, int]], ranks: int
) -> float:
    """Message times until all (source, destination) have arrived; one may wait for another, links are shared fairly."""
    left, now = dict.fromkeys(messages, 1.0), 0.0
    while left:
        moving = [m for m in left if after.get(m) not in left]
        draws = [((s, 1.0), (ranks + d, 1.0)) for s, d in moving]
        rates = max_min([1.0] * (2 * ranks), draws, [1.0] * len(moving), [float("inf")] * len(moving))
        step = min(left[m] / rate for m, rate in zip(moving, rates, strict=True))
        now += step
        for message, rate in zip(moving, rates, strict=True):
            left[message] -= rate * step
            if left[message] < 1e-9:
                del left[message]
    return now


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_all_to_all_takes_its_rounds_in_whatever_order_the_ranks_come(ranks):
    messages = set(permutations(range(ranks), 2))
    for order in permutations(range(ranks)):
        came = {rank: place for place, rank in enumerate(order)}
        waits = {
            (early, late): (late, early)
            for late, early in messages
            if came[late] > came[early] and (early - late) % ranks <= (late - early) % ranks
        }
        assert played(messages, waits, ranks) == pytest.approx(rounds(ranks))


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13])
def test_broadcast_takes_as_long_as_its_tree_played_out(ranks):
    parents = {child: rank for rank in range(ranks) for child in children(rank, ranks)}
    messages = {(parent, child) for child, parent in parents.items()}
    assert len(messages) == ranks - 1
    waits = {(parent, child): (parents[parent], parent) for parent, child in messages if parent}
    assert played(messages, waits, ranks) == pytest.approx(last_arrival(ranks)[0])


def test_two_four_and_eight_ranks_broadcast_in_one_three_and_six_messages():
    assert [last_arrival(n) for n in (2, 4, 8)] == [(1, 1), (3, 2), (6, 3)]


def test_reduce_scatter_takes_at_least_as_long_as_all_reduce():
    for ranks in (2, 4, 8):
        assert seconds("reduce_scatter", 1e6, ranks) >= 0.999 * seconds("all_reduce", 1e6, ranks)


def test_two_ranks_gather_half_as_long_again_as_their_links_need():
    assert seconds("all_gather", 8e6, 2) / (4e6 / RATE) == pytest.approx(1.5, rel=0.01)
