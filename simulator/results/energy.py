"""What a step draws and costs: GPUs between idle and their limit by how busy they are, nodes around them."""

from __future__ import annotations

from simulator.hardware.cluster import Cluster

LIFETIME = 4 * 365 * 86400.0
"""Seconds over which hardware is written off (four years, straight line)."""

ENERGY_PRICE = 0.10 / 3.6e6
"""Dollars per joule (10 cents per kWh, an industrial price)."""


def energy(cluster: Cluster, gpu_busy: float) -> float | None:
    """Watts of the whole cluster while the GPUs are busy for a fraction `gpu_busy`; None without figures."""
    total = 0.0
    for group in cluster.node_groups:
        power = group.node.gpu.power
        if power is None:
            return None
        per_gpu = power.idle + (power.max - power.idle) * min(1.0, gpu_busy)
        total += group.num_nodes * (group.node.num_gpus * per_gpu + (group.node.power or 0.0))
    return total


def cost(cluster: Cluster, power: float | None, seconds: float) -> float | None:
    """Dollars for `seconds` of the cluster: hardware over its lifetime plus energy; None without prices."""
    capital = cluster.price or 0.0
    for group in cluster.node_groups:
        node = group.node
        price = node.price
        if price is None and node.gpu.price is not None:
            nics = (node.nic.price or 0.0) * node.num_nics if node.nic is not None else 0.0
            price = node.gpu.price * node.num_gpus + nics
        if price is None:
            return None
        capital += price * group.num_nodes
    return seconds * (capital / LIFETIME + (power or 0.0) * ENERGY_PRICE)
