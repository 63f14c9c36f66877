"""Which place of the fabric each node of the job sits in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.hardware.links import IntArray

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster


def places(cluster: Cluster) -> IntArray:
    """[num_nodes] a permutation: the job fills as many places as it has nodes, in the order its policy says.

    packed: node i in place i. spread: consecutive nodes in different neighbourhoods (leaves, units, groups),
    dealt out in turn. random: drawn by the policy's seed.
    """
    num_nodes = cluster.total_nodes
    packed = np.arange(num_nodes, dtype=np.int64)
    policy, size = cluster.placement.policy, cluster.fabric.nodes_per_neighbourhood
    if policy == "random":
        return np.random.default_rng(cluster.placement.seed).permutation(num_nodes).astype(np.int64)
    if policy == "spread" and size is not None:
        return np.lexsort((packed // size, packed % size)).astype(np.int64)
    return packed
