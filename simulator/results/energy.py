"""What does a step draw and cost? GPUs between idle and their limit by how busy they are, and nodes around them.

Neither cooling (PUE), staff nor space is counted, and neither is the fabric unless the cluster gives its price.
"""

from __future__ import annotations

from simulator.hardware.cluster import Cluster
from simulator.hardware.node import Node

LIFETIME = 4 * 365 * 86400.0
"""Seconds over which hardware is written off: four years, in a straight line."""

ENERGY_PRICE = 0.10 / 3.6e6
"""Dollars per joule: 10 cents per kWh, an industrial price."""


def power(cluster: Cluster, gpu_busy: float) -> float | None:
    """Watts of the whole cluster while its GPUs are busy for a fraction `gpu_busy` of the time.

    None where the figures of a GPU or of the rest of its node are missing.
    """
    total = 0.0
    for group in cluster.node_groups:
        node, limits = group.node, group.node.gpu.power
        if limits is None or node.power is None:
            return None
        per_gpu = limits.idle + (limits.max - limits.idle) * min(1.0, gpu_busy)
        total += group.num_nodes * (node.num_gpus * per_gpu + node.power)
    return total


def cost(cluster: Cluster, watts: float | None, seconds: float) -> float | None:
    """Dollars for `seconds` of the cluster: its hardware over LIFETIME, and energy where `watts` is known.

    None where a price is missing.
    """
    capital = cluster.price or 0.0
    for group in cluster.node_groups:
        price = _price(group.node)
        if price is None:
            return None
        capital += price * group.num_nodes
    return seconds * (capital / LIFETIME + (watts or 0.0) * ENERGY_PRICE)


def _price(node: Node) -> float | None:
    """Of the node as a whole, else the sum of its GPUs and NICs."""
    if node.price is not None or node.gpu.price is None:
        return node.price
    nics = (node.nic.price or 0.0) * node.num_nics if node.nic is not None else 0.0
    return node.gpu.price * node.num_gpus + nics
