"""Which links join leaf switches through spines (and pods of spines through a core): folded Clos networks.

With even splitting, equal parallel paths carry equal parts, so all uplinks of a leaf act as one bundle and
the table holds one link per leaf and direction. With hashed splitting each flow takes the path its hash
picks, so the table holds one link per leaf, spine and direction, and collisions show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.hardware.links import FloatArray, IntArray, LinkTable
from simulator.hardware.wiring import Block, Ports, Wiring, hashed_choice


@dataclass(frozen=True, slots=True)
class Splitting:
    """How flows spread over `num_planes` equal spines: evenly (`draws` 0), or `draws` hashed picks each."""

    num_planes: int = 1
    draws: int = 0
    seed: int = 0

    def planes(self, key: IntArray) -> list[tuple[IntArray, float]]:
        """(plane of each flow, share of the flow that takes it), once per draw."""
        if not self.draws:
            return [(np.zeros_like(key), 1.0)]
        return [
            (hashed_choice(key, self.num_planes, self.seed * self.draws + draw), 1.0 / self.draws)
            for draw in range(self.draws)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layering:
    """The sizes of the layers. Leaf and pod ids are dense; without `pod_of_leaf` all leaves share the spines.

    A leaf's uplinks have `leaf_uplinks` bytes/s, where null the bandwidth of the NICs below over
    `oversubscription`; a pod's have that of its leaves' uplinks over `core_oversubscription`. Crossing a
    switch costs `hop_latency`.
    """

    leaf_of_port: IntArray
    pod_of_leaf: IntArray | None
    leaf_uplinks: float | None
    oversubscription: float
    core_oversubscription: float
    hop_latency: float
    splitting: Splitting


def wire_clos(ports: Ports, table: LinkTable, layers: Layering) -> Wiring:
    """Add leaves, spines and (for several pods) a core, with the links between them, to the table."""
    leaf_of_port, hop_latency, splitting = layers.leaf_of_port, layers.hop_latency, layers.splitting
    num_leaves = int(leaf_of_port.max()) + 1
    leaf_nics = np.asarray(np.bincount(leaf_of_port, weights=ports.bandwidth), dtype=np.float64)
    leaves = table.add_vertices("leaf", num_leaves)
    if num_leaves == 1:
        return Wiring(leaves[leaf_of_port], hop_latency, lambda s, d, key: [], bisection=min(ports.halves()))

    planes = splitting.num_planes
    pods = np.zeros(num_leaves, dtype=np.int64) if layers.pod_of_leaf is None else layers.pod_of_leaf
    num_pods = int(pods.max()) + 1
    spines = table.add_vertices("spine", num_pods, planes)
    leaf_uplinks = leaf_nics / layers.oversubscription
    if layers.leaf_uplinks is not None:
        leaf_uplinks = np.full(num_leaves, layers.leaf_uplinks)
    leaf_up = table.add_links(
        "leaf_up", leaves[:, None], spines[pods], leaf_uplinks[:, None] / planes, hop_latency
    )
    leaf_down = table.add_links(
        "leaf_down", spines[pods], leaves[:, None], leaf_uplinks[:, None] / planes, hop_latency
    )
    pod_uplinks = np.bincount(pods, weights=leaf_uplinks, minlength=num_pods) / layers.core_oversubscription
    spine_up = spine_down = np.zeros((1, 1), dtype=np.int64)
    if num_pods > 1:
        core = table.add_vertices("core", planes)
        spine_up = table.add_links("spine_up", spines, core, pod_uplinks[:, None] / planes, hop_latency)
        spine_down = table.add_links("spine_down", core, spines, pod_uplinks[:, None] / planes, hop_latency)

    def paths(source: IntArray, destination: IntArray, key: IntArray) -> list[Block]:
        from_leaf, to_leaf = leaf_of_port[source], leaf_of_port[destination]
        flow = np.nonzero(from_leaf != to_leaf)[0]
        from_leaf, to_leaf = from_leaf[flow], to_leaf[flow]
        crossing = np.nonzero(pods[from_leaf] != pods[to_leaf])[0]
        blocks: list[Block] = []
        for plane, share in splitting.planes(key[flow]):
            blocks.append((flow, leaf_up[from_leaf, plane], share))
            if len(crossing):
                up = spine_up[pods[from_leaf[crossing]], plane[crossing]]
                down = spine_down[pods[to_leaf[crossing]], plane[crossing]]
                blocks += [(flow[crossing], up, share), (flow[crossing], down, share)]
            blocks.append((flow, leaf_down[to_leaf, plane], share))
        return blocks

    upper = pod_uplinks if num_pods > 1 else None
    half = _bisection(ports, leaf_of_port, leaf_nics, leaf_uplinks, pods, upper)
    return Wiring(leaves[leaf_of_port], hop_latency, paths, bisection=half)


def _bisection(
    ports: Ports,
    leaf_of_port: IntArray,
    leaf_nics: FloatArray,
    leaf_uplinks: FloatArray,
    pod_of_leaf: IntArray,
    pod_uplinks: FloatArray | None,
) -> float | None:
    """Bandwidth from the first half of the nodes to the second; null where the cut splits a leaf or pod.

    Each half can send the sum over its pods of min(pod uplinks, sum over its leaves of min(NICs, uplinks)). A
    cut through every leaf alike (rails of one unit) meets the NICs alone.
    """
    lower = ports.node < ports.num_nodes // 2
    sides = []
    for side in (lower, ~lower):
        below = np.bincount(leaf_of_port[side], weights=ports.bandwidth[side], minlength=len(leaf_nics))
        if (2 * below == leaf_nics).all():
            return min(ports.halves())
        inside = below > 0
        if not np.array_equal(below[inside], leaf_nics[inside]):
            return None
        sending = np.minimum(below, np.where(inside, leaf_uplinks, 0.0))
        if pod_uplinks is not None:
            leaves_in = np.bincount(pod_of_leaf, weights=inside)
            if (leaves_in[leaves_in > 0] != np.bincount(pod_of_leaf)[leaves_in > 0]).any():
                return None
            sending = np.minimum(np.bincount(pod_of_leaf, weights=sending), pod_uplinks)
        sides.append(float(sending.sum()))
    return min(sides)
