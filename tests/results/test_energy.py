"""Power between idle and the limit, cost over the lifetime; nothing is made up where figures are missing."""

from __future__ import annotations

from typing import Any

import pytest

import simulator
from simulator.hardware.cluster import Cluster
from simulator.results.energy import ENERGY_PRICE, LIFETIME, cost, power


def selene(**overrides: Any) -> Cluster:
    return simulator.load_cluster("selene", gpus=16, overrides=overrides)


def test_power_is_idle_at_rest_and_the_limit_when_busy() -> None:
    cluster = selene(**{"node.power": "1000 W", "node.gpu.power": "{idle: 50 W, max: 400 W}"})
    assert power(cluster, 0.0) == pytest.approx(2 * (1000 + 8 * 50))
    assert power(cluster, 1.0) == pytest.approx(2 * (1000 + 8 * 400))
    assert power(cluster, 0.5) == pytest.approx(2 * (1000 + 8 * 225))
    assert power(cluster, 1.5) == power(cluster, 1.0)


@pytest.mark.parametrize("missing", ["node.power", "node.gpu.power"])
def test_power_is_unknown_without_its_figures(missing: str) -> None:
    assert power(selene(**{missing: "null"}), 0.5) is None


def test_cost_is_the_hardware_over_its_lifetime_and_the_energy() -> None:
    cluster = selene(**{"node.price": "200000 USD"})
    assert cost(cluster, None, LIFETIME) == pytest.approx(400_000)
    assert cost(cluster, 3.6e6, 2.0) == pytest.approx(400_000 * 2.0 / LIFETIME + 2 * 0.10)
    assert pytest.approx(0.10) == ENERGY_PRICE * 3.6e6


def test_a_node_without_price_costs_what_its_parts_cost_or_an_unknown_amount() -> None:
    parts = {"node.price": "null", "node.gpu.price": "10000 USD", "node.nic.price": "1000 USD"}
    assert cost(selene(**parts), None, LIFETIME) == pytest.approx(2 * (8 * 10_000 + 8 * 1_000))
    assert cost(selene(**parts, price="50000 USD"), None, LIFETIME) == pytest.approx(226_000)
    assert cost(selene(**{**parts, "node.gpu.price": "null"}), None, LIFETIME) is None
