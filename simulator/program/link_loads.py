"""What does one byte of a collective put on every link, and which links can limit it?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives.patterns import REDUCER
from simulator.hardware.topology import Routes, Topology
from simulator.ranks.folding import GroupLayer

Ints = NDArray[np.int64]

LAID_IN_RINGS = frozenset({"ring", "chain", "tree", "hierarchical"})
"""Patterns whose edges inside a node follow each other in an order that the library is free to choose."""

TREES = ("tree", "switch")
"""Patterns between nodes in which every node is inner in one tree and a leaf in the other."""

ENDPOINTS = ("nic", "host", "scale_up")


def evened(topology: Topology, loads: Loads) -> Loads:
    """The same bytes spread evenly over the members' own ports.

    Two complementary trees load all ports alike but for the roots'; without their place in the tree, which no program
    depends on, the members of a group are interchangeable.
    """
    group, link, amount = loads
    own = np.array([kind.startswith(ENDPOINTS) for kind in topology.kind_names], dtype=bool)[
        topology.kind[link]
    ]
    key = group * len(topology.kind_names) + topology.kind[link]
    _, which, size = np.unique(key, return_inverse=True, return_counts=True)
    mean = np.bincount(which, weights=amount) / size
    return group, link, np.where(own, mean[which], amount)


Loads = tuple[Ints, Ints, NDArray[np.float64]]
"""Rows (group, link, amount)."""

Feeds = tuple[Ints, Ints]
"""Keys link x num_links + NIC link: which NICs send, and which receive, what crosses a switch-to-switch link."""


def link_loads(topology: Topology, found: Any, pattern: str) -> tuple[Loads, Feeds]:
    """Rows (group, link, amount): what one byte of volume puts on every link; and the NICs behind fabric links."""
    group, source, destination, share = found
    up, down = destination == REDUCER, source == REDUCER
    between = ~(up | down)
    if pattern in LAID_IN_RINGS:
        routes = topology.ring_routes(group[between], source[between], destination[between])
    else:
        routes = topology.routes(source[between], destination[between])
    rows = [
        (group[between][routes.flow], routes.link, share[between][routes.flow] * routes.share),
        (group[up], topology.scale_up_out[source[up]], share[up]),
        (group[down], topology.scale_up_in[destination[down]], share[down]),
    ]
    groups, links, amounts = (np.concatenate(column) for column in zip(*rows, strict=True))
    key = groups * topology.num_links + links
    unique, inverse = np.unique(key, return_inverse=True)
    summed = np.bincount(inverse, weights=amounts).astype(np.float64)
    loads = unique // topology.num_links, unique % topology.num_links, summed
    return loads, (feeds_of(topology, routes, "nic_out"), feeds_of(topology, routes, "nic_in"))


def feeds_of(topology: Topology, routes: Routes, nic_kind: str) -> Ints:
    """Distinct (switch-to-switch link, NIC link) pairs among the routes, as keys."""
    names = topology.kind_names
    inner = np.array([name.startswith(("leaf", "spine")) for name in names], dtype=bool)[
        topology.kind[routes.link]
    ]
    nics = np.array([name == nic_kind for name in names], dtype=bool)[topology.kind[routes.link]]
    if not inner.any():
        return np.zeros(0, dtype=np.int64)
    nic_of_flow = np.zeros(int(routes.flow.max()) + 1, dtype=np.int64)
    nic_of_flow[routes.flow[nics]] = routes.link[nics]
    return np.unique(routes.link[inner] * topology.num_links + nic_of_flow[routes.flow[inner]])


def limiting_links(topology: Topology, layers: Iterable[GroupLayer], feeds: Iterable[Feeds]) -> Ints:
    """The links in use, without those that cannot be the tightest of any flow.

    What crosses a switch-to-switch link came out of some NICs and goes into some; where the ones or the others are
    together no faster than the link, it never limits.
    """
    links = [layer.link for layer in layers]
    used = np.unique(np.concatenate(links)) if links else np.zeros(0, dtype=np.int64)
    ample = np.zeros(0, dtype=np.int64)
    for pairs in zip(*feeds, strict=True):
        pair = np.unique(np.concatenate(pairs))
        link, nic = pair // topology.num_links, pair % topology.num_links
        offered = np.bincount(link, weights=topology.capacity[nic], minlength=topology.num_links)
        crossed = np.unique(link)
        ample = np.union1d(ample, crossed[offered[crossed] <= topology.capacity[crossed] * (1 + 1e-12)])
    return np.setdiff1d(used, ample)


def restricted(layer: GroupLayer, position: Ints) -> GroupLayer:
    """The layer without the links that `position` leaves out, renumbered."""
    link = position[layer.link]
    kept = link >= 0
    return GroupLayer(layer.members, layer.group[kept], link[kept], layer.amount[kept], layer.colour)


def link_colours(topology: Topology, links: Ints) -> Ints:
    """Equal numbers for links of equal kind and capacity."""
    _, rate = np.unique(topology.capacity[links], return_inverse=True)
    return topology.kind[links].astype(np.int64) * (len(links) + 1) + rate.ravel()
