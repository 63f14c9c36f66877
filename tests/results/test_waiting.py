"""What replicas wait for one another: order statistics where they are known, and what must hold of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.hardware.stragglers import Stragglers
from simulator.ranks.grid import Grid
from simulator.results.waiting import advance
from simulator.workloads.plan import Plan
from simulator.workloads.synchronisation import Synchronisation

EXPONENTIAL = Stragglers(distribution="exponential", spread=0.1)
NORMAL = Stragglers(distribution="normal", spread=0.1)


def harmonic(n: int) -> float:
    return sum(1.0 / k for k in range(1, n + 1))


def wait(
    replicas: int, stragglers: Stragglers = EXPONENTIAL, nodes: int | None = None, **scheme: object
) -> float:
    synchronisation = Synchronisation.model_validate(scheme)
    grid = Grid.of(Plan(name="", synchronisation=synchronisation), replicas)
    return advance(synchronisation, grid, nodes or replicas, stragglers)


@given(st.sampled_from([2, 8, 50, 200]))
def test_all_wait_for_the_last(n: int) -> None:
    """The largest of n exponential delays has the mean H_n."""
    assert wait(n) == pytest.approx(0.1 * harmonic(n), rel=0.03)


@pytest.mark.parametrize("backup", [1, 4, 25])
def test_backup_replicas_leave_the_first_m_of_n(backup: int) -> None:
    """The m-th of n exponential delays has the mean H_n - H_(n-m)."""
    expected = 0.1 * (harmonic(50) - harmonic(backup))
    assert wait(50, scheme="backup", backup=backup) == pytest.approx(expected, rel=0.03)


def test_the_largest_of_two_normal_delays() -> None:
    assert wait(2, NORMAL) == pytest.approx(0.1 / 3.14159**0.5, rel=0.05)


def test_gossip_does_not_wait_longer_the_more_there_are() -> None:
    few, many = (wait(n, scheme="gossip", neighbours=2) for n in (16, 256))
    assert many == pytest.approx(few, rel=0.15)
    assert many < 0.6 * wait(256)


def test_local_steps_average_the_delays() -> None:
    once, rarely = wait(64), wait(64, scheme="local", every=16)
    assert 0.1 < rarely < once / 2


def test_one_group_of_all_waits_as_all_do() -> None:
    assert wait(16, scheme="groups", group=16) == pytest.approx(wait(16), rel=0.03)


def test_a_replica_is_as_late_as_its_slowest_node() -> None:
    """Replicas of several nodes wait for all nodes all the same; those that share a node are late together."""
    assert wait(4, nodes=16) == pytest.approx(wait(16), rel=0.03)
    assert wait(16, nodes=4) == pytest.approx(wait(4), rel=0.03)


def test_observed_delays_are_drawn_from() -> None:
    """One in ten steps of a node takes half as long again: all wait with probability 1 - 0.9^n."""
    seen = Stragglers(distribution="samples", samples=(0.5, *[0.0] * 9))
    assert wait(8, seen) == pytest.approx(0.5 * (1 - 0.9**8), rel=0.03)
