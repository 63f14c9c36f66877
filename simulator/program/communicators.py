"""What a collective of each process group costs and which links it draws on, folded over interchangeable ranks.

Stands between the plan (which axis, which operation, how many bytes) and the program (latency, work, draws): it
chooses the algorithm for the shape of the group, routes the algorithm's edges over the topology, and folds the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives import CollectiveCost, GroupShape
from simulator.costs.collectives.patterns import REDUCER, edges
from simulator.costs.software import ParameterServers
from simulator.hardware.topology import Routes, Topology
from simulator.program import host_copies, server_links
from simulator.program.chains import Transfer
from simulator.ranks.folding import Folding, GroupLayer, fold
from simulator.ranks.grid import Grid

Ints = NDArray[np.int64]
Request = tuple[str, str, float]
"""(axis, operation, bytes): axis is one of the grid's, or pair+1 / pair-1 / tied for pipeline neighbours."""

FoldingKey = tuple[tuple[tuple[str, str], ...], bool, tuple[int, ...]]
OWN_AXES = (host_copies.AXIS, server_links.AXIS)
"""Axes of which every rank is a group of its own."""

CostModel = Callable[[str, float, GroupShape], CollectiveCost]


class Communicators:
    """The process groups of one grid on one topology. Rank r runs on GPU r."""

    def __init__(self, grid: Grid, topology: Topology, cost_model: CostModel) -> None:
        self.grid = grid
        self.topology = topology
        self.cost_model = cost_model
        self._members: dict[str, Ints] = {}
        self._shapes: dict[str, tuple[list[GroupShape], Ints]] = {}
        self._costs: dict[tuple[str, float, GroupShape], CollectiveCost] = {}
        self._layers: dict[tuple[str, str], tuple[GroupLayer, Feeds]] = {}
        self._foldings: dict[FoldingKey, FoldedCommunicators] = {}

    def members(self, axis: str) -> Ints:
        """[groups, size] ranks."""
        if axis not in self._members:
            self._members[axis] = self._find_members(axis)
        return self._members[axis]

    def _find_members(self, axis: str) -> Ints:
        if axis.startswith("pair "):  # two places in every group of another axis
            _, whole, ends = axis.split()
            return self.members(whole)[:, [int(place) for place in ends.split(">")]]
        if axis.startswith("pair"):
            return self.grid.pipeline_pairs(int(axis[4:]))
        if axis in OWN_AXES:
            return np.arange(self.grid.world, dtype=np.int64)[:, None]
        if axis == "tied":
            first_last = self.grid.ranks[..., [0, -1]]
            return first_last.reshape(-1, 2)
        if axis == "twins":  # stages that hold the same parts of the model (DualPipe)
            stages = self.grid.ranks
            half = stages.shape[-1] // 2
            return np.stack([stages[..., :half], stages[..., : half - 1 : -1]], axis=-1).reshape(-1, 2)
        return self.grid.groups(axis)

    def shapes(self, axis: str) -> tuple[list[GroupShape], Ints]:
        """The distinct shapes of an axis' groups, and which of them each group has."""
        if axis not in self._shapes:
            self._shapes[axis] = group_shapes(self.topology, self.members(axis))
        return self._shapes[axis]

    def costs(self, axis: str, op: str, size: float) -> list[CollectiveCost]:
        """One cost per distinct shape of the axis."""
        return [self._cost(op, size, shape) for shape in self.shapes(axis)[0]]

    def _cost(self, op: str, size: float, shape: GroupShape) -> CollectiveCost:
        key = (op, size, shape)
        if key not in self._costs:
            self._costs[key] = self.cost_model(op, size, shape)
        return self._costs[key]

    def fold(
        self, requests: Iterable[Request], enabled: bool = True, by_slot: tuple[int, ...] = ()
    ) -> FoldedCommunicators:
        """Fold ranks, groups and links for everything that `requests` will send.

        Slots (places along cp, then dp) with another number in `by_slot` are never folded together.
        """
        patterns = {
            (axis, pattern)
            for axis, op, size in set(requests)
            for pattern in self._patterns(axis, op, size)
            if pattern != "none"
        }
        key = (tuple(sorted(patterns)), enabled, by_slot)
        if key not in self._foldings:
            self._foldings[key] = FoldedCommunicators(self, *self._folding(*key))
        return self._foldings[key]

    def _patterns(self, axis: str, op: str, size: float) -> list[str]:
        """What an operation of the axis draws on: those of single ranks are their own pattern."""
        return [op] if axis in OWN_AXES else [cost.pattern for cost in self.costs(axis, op, size)]

    def _folding(
        self, patterns: tuple[tuple[str, str], ...], enabled: bool, by_slot: tuple[int, ...]
    ) -> tuple[Folding, Ints]:
        """The folding for a set of patterns, and the links that can limit anything."""
        found = {f"{axis}:{pattern}": self._layer(axis, pattern) for axis, pattern in patterns}
        used = _limiting_links(self.topology, [x for x, _ in found.values()], [f for _, f in found.values()])
        position = np.full(self.topology.num_links, -1, dtype=np.int64)
        position[used] = np.arange(len(used))
        layers = {name: _restricted(layer, position) for name, (layer, _) in found.items()}
        stages = self.grid.coordinate("pp")
        colour = stages * len(self.topology.hardware) + self.topology.gpu_hardware
        if by_slot:
            colour = colour * (max(by_slot) + 1) + np.array(by_slot)[self.grid.slots]
        return fold(colour, _link_colours(self.topology, used), layers, enabled), used

    def _layer(self, axis: str, pattern: str) -> tuple[GroupLayer, Feeds]:
        if axis == host_copies.AXIS and (axis, pattern) not in self._layers:
            none = np.zeros(0, dtype=np.int64)
            self._layers[axis, pattern] = host_copies.copy_layer(self.topology, pattern), (none, none)
        if axis == server_links.AXIS and (axis, pattern) not in self._layers:
            layer, routes = server_links.server_layer(self.topology, pattern)
            feeds = (_feeds(self.topology, routes, "nic_out"), _feeds(self.topology, routes, "nic_in"))
            self._layers[axis, pattern] = layer, feeds
        if (axis, pattern) not in self._layers:
            members = self.members(axis)
            loads, feeds = link_loads(self.topology, edges(pattern, members, self.topology.gpu_node), pattern)
            if pattern in TREES:
                loads = evened(self.topology, loads)
            self._layers[axis, pattern] = GroupLayer(members, *loads, self.shapes(axis)[1]), feeds
        return self._layers[axis, pattern]


class FoldedCommunicators:
    """The same groups after folding: `transfer` answers for a rank class, with draws on link classes."""

    def __init__(self, communicators: Communicators, folding: Folding, links: Ints) -> None:
        self.communicators = communicators
        self.folding = folding
        self.links = links
        self._draws = {name: folding.draws(name) for name in folding.layers}
        self._totals: dict[str, NDArray[np.float64]] = {}
        self._peers: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}
        self._transfers: dict[tuple[str, str, float, int], Transfer | None] = {}

    @cached_property
    def representatives(self) -> Ints:
        return self.folding.representatives()

    @property
    def num_classes(self) -> int:
        return len(self.representatives)

    @cached_property
    def link_representatives(self) -> Ints:
        """One topology link per link class."""
        if not len(self.links):
            return np.zeros(0, dtype=np.int64)
        return self.links[np.unique(self.folding.link_class, return_index=True)[1]]

    def group(self, axis: str, rank_class: int, place: int | None = None) -> tuple[int, tuple[int, ...]]:
        """(group, member classes) of the class's representative; `place` its column, for pairs.

        Classes of pairs are in order. Others ascend: groups that are folded together may list them in different orders.
        """
        key = (axis if place is None else f"{axis}@{place}", rank_class)
        if key not in self._peers:
            members = self.communicators.members(axis)
            rank = self.representatives[rank_class]
            where = members == rank if place is None else members[:, place] == rank
            group = int(np.argmax(where.any(axis=1) if place is None else where))
            classes = self.folding.rank_class[members[group]]
            found = dict.fromkeys(int(c) for c in classes)
            self._peers[key] = (group, tuple(sorted(found) if place is None else found))
        return self._peers[key]

    def place(self, axis: str, rank_class: int) -> int:
        """Where in its group of the axis the class's representative stands."""
        members = self.communicators.members(axis)
        return int(np.nonzero(members == self.representatives[rank_class])[1][0])

    def classes(self, axis: str, rank_class: int) -> tuple[int, ...]:
        """Rank classes with a member in the group."""
        return self.group(axis, rank_class)[1]

    def transfer(
        self, axis: str, op: str, size: float, rank_class: int, place: int | None = None
    ) -> Transfer | None:
        """The collective as the class's group carries it out; None where it moves nothing."""
        members, copies = self.communicators.members(axis), axis == host_copies.AXIS
        if (members.shape[1] < 2 and not copies) or size <= 0.0:
            return None
        group, _ = self.group(axis, rank_class, place)
        key = (axis, op, size, group)
        if key not in self._transfers:
            self._transfers[key] = (
                self._copy(op, size, group) if copies else self._price(axis, op, size, group)
            )
        return self._transfers[key]

    def _copy(self, op: str, size: float, rank: int) -> Transfer:
        """A copy of one rank (or work of its host), priced while all ranks do the same."""
        layer = f"{host_copies.AXIS}:{op}"
        rows = self._draws[layer][int(self.folding.group_class[layer][rank])]
        draws = tuple((self.num_classes + link, amount) for link, amount in rows)
        rate = self._nominal_rate(layer, rank, {link: 1.0 for link, _ in rows})
        return Transfer(host_copies.AXIS, host_copies.LATENCY, size, draws, rate, 0.0, op)

    def server_transfer(
        self, op: str, size: float, rank_class: int, cost: ParameterServers, rate: float
    ) -> Transfer | None:
        """What one rank pushes to the servers or pulls from them, priced while all ranks do the same.

        A server handles `rate` bytes/s.
        """
        if size <= 0.0:
            return None
        layer, rank = f"{server_links.AXIS}:{op}", int(self.representatives[rank_class])
        achieved = self._server_efficiencies(op, rank, cost, rate)
        rows = self._draws[layer][int(self.folding.group_class[layer][rank])]
        draws = tuple((self.num_classes + link, amount / achieved[link]) for link, amount in rows)
        nominal = self._nominal_rate(layer, rank, achieved)
        return Transfer(server_links.AXIS, host_copies.LATENCY, size, draws, nominal, 0.0, op)

    def server_rate_alone(self, op: str, rank_class: int, cost: ParameterServers, rate: float) -> float:
        """Bytes/s of the same while no other rank does it."""
        rank = int(self.representatives[rank_class])
        achieved = self._server_efficiencies(op, rank, cost, rate)
        return self._rate_alone(f"{server_links.AXIS}:{op}", rank, achieved)

    def _server_efficiencies(
        self, op: str, rank: int, cost: ParameterServers, rate: float
    ) -> dict[int, float]:
        """By class of the links that the rank's operation draws on."""
        rows, topology = self.folding.layers[f"{server_links.AXIS}:{op}"], self.communicators.topology
        first, last = np.searchsorted(rows.group, (rank, rank + 1))
        links = rows.link[first:last]
        kinds = [topology.link_kind(int(link)) for link in self.links[links].tolist()]
        others = server_links.senders(op, topology.num_nodes) - 1
        achieved = cost.network, cost.network / (1.0 + cost.incast * others), rate
        return {
            link: server_links.efficiency(kind, *achieved)
            for link, kind in zip(self.folding.link_class[links].tolist(), kinds, strict=True)
        }

    def latency_only(self, axis: str, op: str, size: float, rank_class: int) -> Transfer | None:
        """A collective of a few bytes: its latency, without draws."""
        if self.communicators.members(axis).shape[1] < 2:
            return None
        shapes, which = self.communicators.shapes(axis)
        group, _ = self.group(axis, rank_class)
        cost = self.communicators._cost(op, size, shapes[int(which[group])])
        return Transfer(axis, cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm)

    def _price(self, axis: str, op: str, size: float, group: int) -> Transfer | None:
        shapes, which = self.communicators.shapes(axis)
        cost = self.communicators._cost(op, size, shapes[int(which[group])])
        layer = f"{axis}:{cost.pattern}"
        if cost.pattern == "none" or layer not in self._draws:
            return Transfer(axis, cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm) if cost.latency else None
        rows = self._draws[layer].get(int(self.folding.group_class[layer][group]), [])
        shape = shapes[int(which[group])]
        efficiency = {link_class: self._efficiency(link_class, cost, shape) for link_class, _ in rows}
        draws = tuple((self.num_classes + link, amount / efficiency[link]) for link, amount in rows)
        if not draws or cost.volume <= 0.0:
            return Transfer(axis, cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm)
        rate, cap = self._nominal_rate(layer, group, efficiency), inf
        if cost.stretch > 1.0:
            cap = self._rate_alone(layer, group, efficiency) / cost.stretch
        return Transfer(
            axis, cost.latency, cost.volume, draws, min(rate, cap), cost.gpu_share, cost.algorithm, cap
        )

    def _efficiency(self, link_class: int, cost: CollectiveCost, shape: GroupShape) -> float:
        """Achieved fraction of a link's capacity; host links count as scale-up where no network is crossed."""
        kind = self.communicators.topology.link_kind(int(self.link_representatives[link_class]))
        inside = ("scale_up", "mesh", "host") if shape.num_nodes == 1 else ("scale_up", "mesh")
        return cost.efficiency["scale_up" if kind.startswith(inside) else "nic"]

    def _rate_alone(self, layer: str, group: int, efficiency: dict[int, float]) -> float:
        """Bytes/s of the group while nothing else runs."""
        rows = self.folding.layers[layer]
        first, last = np.searchsorted(rows.group, (group, group + 1))
        links = rows.link[first:last]
        achieved = np.array([efficiency[c] for c in self.folding.link_class[links].tolist()])
        capacity = self.communicators.topology.capacity[self.links[links]]
        return float((capacity * achieved / rows.amount[first:last]).min())

    def _nominal_rate(self, layer: str, group: int, efficiency: dict[int, float]) -> float:
        """Bytes/s of the group while all groups of its axis run at once, whatever the folding."""
        rows = self.folding.layers[layer]
        first, last = np.searchsorted(rows.group, (group, group + 1))
        links = rows.link[first:last]
        if layer not in self._totals:
            self._totals[layer] = np.bincount(
                rows.link, weights=rows.amount, minlength=len(self.links)
            ).astype(np.float64)
        achieved = np.array([efficiency[c] for c in self.folding.link_class[links].tolist()])
        capacity = self.communicators.topology.capacity[self.links[links]]
        return float((capacity * achieved / self._totals[layer][links]).min())


def _limiting_links(topology: Topology, layers: Iterable[GroupLayer], feeds: Iterable[Feeds]) -> Ints:
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


def _restricted(layer: GroupLayer, position: Ints) -> GroupLayer:
    """The layer without the links that `position` leaves out, renumbered."""
    link = position[layer.link]
    kept = link >= 0
    return GroupLayer(layer.members, layer.group[kept], link[kept], layer.amount[kept], layer.colour)


def _link_colours(topology: Topology, links: Ints) -> Ints:
    """Equal numbers for links of equal kind and capacity."""
    _, rate = np.unique(topology.capacity[links], return_inverse=True)
    return topology.kind[links].astype(np.int64) * (len(links) + 1) + rate.ravel()


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
    return loads, (_feeds(topology, routes, "nic_out"), _feeds(topology, routes, "nic_in"))


def _feeds(topology: Topology, routes: Routes, nic_kind: str) -> Ints:
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


def group_shapes(topology: Topology, members: Ints) -> tuple[list[GroupShape], Ints]:
    """Distinct `GroupShape`s among the groups [groups, n] and the index of each group's."""
    nodes = topology.gpu_node[members]
    order = np.argsort(nodes, axis=1, kind="stable")
    ordered = np.take_along_axis(nodes, order, axis=1)
    starts = np.ones(ordered.shape, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    num_nodes = starts.sum(axis=1)
    run = np.cumsum(starts, axis=1) - 1
    counts = np.zeros((len(members), int(num_nodes.max())), dtype=np.int64)
    np.add.at(counts, (np.repeat(np.arange(len(members)), members.shape[1]), run.ravel()), 1)
    fullest = counts.max(axis=1)
    # NICs and hardware follow from where the members sit inside their nodes: one signature per distinct layout.
    local = np.sort(topology.gpu_local[members], axis=1)
    hardware = np.sort(topology.gpu_hardware[members], axis=1)
    signature = np.column_stack([num_nodes, fullest, _row_hash(local), _row_hash(hardware)])
    _, first, which = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    # Groups of one size run in step with one another, so the longest path among them counts for all of them.
    spread = topology.latency(members[:, 0], members[:, -1])
    longest = {int(n): float(spread[num_nodes == n].max()) for n in np.unique(num_nodes)}
    found = [
        _shape(topology, members[g], int(num_nodes[g]), int(fullest[g]), longest[int(num_nodes[g])])
        for g in first
    ]
    shapes = list(dict.fromkeys(found))
    return shapes, np.array([shapes.index(shape) for shape in found], dtype=np.int64)[which.ravel()]


def _shape(topology: Topology, members: Ints, num_nodes: int, fullest: int, latency: float) -> GroupShape:
    """The shape of one group; bandwidths are those of its slowest node."""
    nodes = topology.gpu_node[members]
    node = topology.nodes[int(topology.node_hardware[nodes[0]])]
    scale_up = [topology.hardware[int(h)].scale_up for h in np.unique(topology.gpu_hardware[members])]
    hosts = [topology.hardware[int(h)].host_link for h in np.unique(topology.gpu_hardware[members])]
    ways = scale_up if node.interconnect.kind in ("nvswitch", "nvlink_mesh") else hosts
    nic = _nic_bandwidth(topology, members) if num_nodes > 1 else 0.0
    return GroupShape(
        num_ranks=len(members),
        num_nodes=num_nodes,
        ranks_per_node=fullest,
        scale_up_kind=node.interconnect.kind,
        in_network_reduction=node.interconnect.in_network_reduction,
        scale_up_bandwidth=min(
            (topology.scale_up_bandwidth(members), *(w.bandwidth for w in ways if w is not None))
        ),
        nic_bandwidth=nic,
        hop_latency=latency if num_nodes > 1 else 0.0,
    )


def _nic_bandwidth(topology: Topology, members: Ints) -> float:
    """Bytes/s of all NICs that the members of one node use, the slowest node's."""
    num_ports = len(topology.ports)
    pairs = np.unique(topology.gpu_node[members] * num_ports + topology.gpu_port[members])
    starts = np.flatnonzero(np.diff(pairs // num_ports, prepend=-1))
    return float(np.add.reduceat(topology.ports.bandwidth[pairs % num_ports], starts).min())


def _row_hash(rows: Ints) -> Ints:
    """A 62-bit number per row, equal for equal rows."""
    weights = np.arange(1, rows.shape[1] + 1, dtype=np.int64) * 0x9E3779B1 % (1 << 31)
    return (rows + 1) @ weights
