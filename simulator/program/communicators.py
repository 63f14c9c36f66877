"""What a collective of each process group costs and which links it draws on, folded over interchangeable ranks.

Stands between the plan (which axis, which operation, how many bytes) and the program (latency, work, draws): it
chooses the algorithm for the shape of the group, routes the algorithm's edges over the topology, and folds the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives import CollectiveCost, GroupShape
from simulator.costs.collectives.patterns import edges
from simulator.costs.software import ParameterServers
from simulator.hardware.topology import Topology
from simulator.program import host_copies, server_links
from simulator.program.chains import Transfer
from simulator.program.group_shapes import group_shapes
from simulator.program.link_loads import (
    TREES,
    Feeds,
    evened,
    feeds_of,
    limiting_links,
    link_colours,
    link_loads,
    restricted,
)
from simulator.ranks.folding import Folding, GroupLayer, fold
from simulator.ranks.layout import Layout

Ints = NDArray[np.int64]
Request = tuple[str, str, float]
"""(axis, operation, bytes): axis is one of the grid's, or pair+1 / pair-1 / tied for pipeline neighbours."""

FoldingKey = tuple[tuple[tuple[str, str], ...], bool, tuple[int, ...]]
OWN_AXES = (host_copies.AXIS, server_links.AXIS)
"""Axes of which every rank is a group of its own."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What `count` equal pairs send that begin (or end) at one rank: priced as `group`, known by `alike`."""

    group: int
    alike: tuple[int, ...]
    count: int

    @property
    def sender(self) -> int:
        """Rank class."""
        return self.alike[0]

    @property
    def receiver(self) -> int:
        """Rank class."""
        return self.alike[1]


CostModel = Callable[[str, float, GroupShape], CollectiveCost]


class Communicators:
    """The process groups of one layout of ranks on one topology. Rank r runs on GPU r."""

    def __init__(self, grid: Layout, topology: Topology, cost_model: CostModel) -> None:
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
        if axis in OWN_AXES:
            return np.arange(self.grid.world, dtype=np.int64)[:, None]
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
        used = limiting_links(self.topology, [x for x, _ in found.values()], [f for _, f in found.values()])
        position = np.full(self.topology.num_links, -1, dtype=np.int64)
        position[used] = np.arange(len(used))
        layers = {name: restricted(layer, position) for name, (layer, _) in found.items()}
        stages = self.grid.coordinate("pp")
        colour = stages * len(self.topology.hardware) + self.topology.gpu_hardware
        if by_slot:
            colour = colour * (max(by_slot) + 1) + np.array(by_slot)[self.grid.slots]
        return fold(colour, link_colours(self.topology, used), layers, enabled), used

    def _layer(self, axis: str, pattern: str) -> tuple[GroupLayer, Feeds]:
        if axis == host_copies.AXIS and (axis, pattern) not in self._layers:
            none = np.zeros(0, dtype=np.int64)
            self._layers[axis, pattern] = host_copies.copy_layer(self.topology, pattern), (none, none)
        if axis == server_links.AXIS and (axis, pattern) not in self._layers:
            layer, routes = server_links.server_layer(self.topology, pattern)
            feeds = (feeds_of(self.topology, routes, "nic_out"), feeds_of(self.topology, routes, "nic_in"))
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
        self._names: dict[tuple[str, int], str] = {}
        self._peers: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}
        self._transfers: dict[tuple[str, str, float, int], Transfer | None] = {}
        self._flows: dict[tuple[str, int, int], list[Flow]] = {}

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

    @cached_property
    def stages(self) -> Ints:
        """The pipeline stage of each rank class."""
        return self.communicators.grid.coordinate("pp")[self.representatives]

    def _name(self, axis: str, rank_class: int) -> str:
        """The axis as the layout of all ranks calls what a rank of the class does."""
        key = (axis, rank_class)
        if key not in self._names:
            here = (
                axis
                if axis in OWN_AXES
                else self.communicators.grid.axis_at(axis, int(self.stages[rank_class]))
            )
            self._names[key] = here
        return self._names[key]

    def group(self, axis: str, rank_class: int, place: int | None = None) -> tuple[int, tuple[int, ...]]:
        """(group, member classes) of the class's representative; `place` its column, for pairs.

        Classes of pairs are in order. Others ascend: groups that are folded together may list them in different orders.
        """
        key = (axis if place is None else f"{axis}@{place}", rank_class)
        if key not in self._peers:
            members = self.communicators.members(self._name(axis, rank_class))
            rank = self.representatives[rank_class]
            where = members == rank if place is None else members[:, place] == rank
            group = int(np.argmax(where.any(axis=1) if place is None else where))
            classes = self.folding.rank_class[members[group]]
            found = dict.fromkeys(int(c) for c in classes)
            self._peers[key] = (group, tuple(sorted(found) if place is None else found))
        return self._peers[key]

    def place(self, axis: str, rank_class: int) -> int:
        """Where in its group of the axis the class's representative stands."""
        members = self.communicators.members(self._name(axis, rank_class))
        return int(np.nonzero(members == self.representatives[rank_class])[1][0])

    def classes(self, axis: str, rank_class: int) -> tuple[int, ...]:
        """Rank classes with a member in the group."""
        return self.group(axis, rank_class)[1]

    def transfer(
        self, axis: str, op: str, size: float, rank_class: int, place: int | None = None
    ) -> Transfer | None:
        """The collective as the class's group carries it out; None where it moves nothing."""
        name = self._name(axis, rank_class)
        members, copies = self.communicators.members(name), axis == host_copies.AXIS
        if (members.shape[1] < 2 and not copies) or size <= 0.0:
            return None
        group, _ = self.group(axis, rank_class, place)
        key = (name, op, size, group)
        if key not in self._transfers:
            self._transfers[key] = (
                self._copy(op, size, group) if copies else self._price(axis, name, op, size, group)
            )
        return self._transfers[key]

    def flows(self, axis: str, rank_class: int, place: int) -> list[Flow]:
        """What the class's representative sends (`place` 0) or receives (1) on an axis of pairs.

        Messages that are folded together are one, with their number.
        """
        key = (axis, rank_class, place)
        if key not in self._flows:
            self._flows[key] = self._find_flows(*key)
        return self._flows[key]

    def _find_flows(self, axis: str, rank_class: int, place: int) -> list[Flow]:
        members, representative = self.communicators.members(axis), self.representatives[rank_class]
        found: dict[tuple[int, ...], Flow] = {}
        for group in np.flatnonzero(members[:, place] == representative).tolist():
            sender, receiver = (int(c) for c in self.folding.rank_class[members[group]])
            alike = (sender, receiver, *self._folded(axis, group))
            count = found[alike].count + 1 if alike in found else 1
            found[alike] = Flow(found[alike].group if alike in found else group, alike, count)
        return list(found.values())

    def _folded(self, axis: str, group: int) -> tuple[int, ...]:
        """The class of a group, in every pattern that the axis has."""
        layers = [name for name in self.folding.layers if name.startswith(f"{axis}:")]
        return tuple(int(self.folding.group_class[name][group]) for name in layers)

    def flow(self, axis: str, size: float, group: int) -> Transfer | None:
        """What one pair of an axis sends; None for nothing."""
        key = (axis, "send_recv", size, group)
        if key not in self._transfers:
            self._transfers[key] = self._price(axis, axis, "send_recv", size, group) if size > 0.0 else None
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
        name = self._name(axis, rank_class)
        if self.communicators.members(name).shape[1] < 2:
            return None
        shapes, which = self.communicators.shapes(name)
        group, _ = self.group(axis, rank_class)
        cost = self.communicators._cost(op, size, shapes[int(which[group])])
        return Transfer(axis, cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm)

    def _price(self, axis: str, name: str, op: str, size: float, group: int) -> Transfer | None:
        """The collective of a group of the axis that the layout calls `name`."""
        shapes, which = self.communicators.shapes(name)
        cost = self.communicators._cost(op, size, shapes[int(which[group])])
        layer = f"{name}:{cost.pattern}"
        if cost.pattern == "none" or layer not in self._draws:
            return Transfer(axis, cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm) if cost.latency else None
        rows = self._draws[layer].get(int(self.folding.group_class[layer][group]), [])
        shape = shapes[int(which[group])]
        efficiency = {link_class: self._efficiency(link_class, cost, shape) for link_class, _ in rows}
        draws = tuple((self.num_classes + link, amount / efficiency[link]) for link, amount in rows)
        if not draws or cost.volume <= 0.0:
            return Transfer(
                axis, cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm, op=op, size=size, groups=name
            )
        rate, cap = self._nominal_rate(layer, group, efficiency), inf
        if cost.stretch > 1.0:
            cap = self._rate_alone(layer, group, efficiency) / cost.stretch
        return Transfer(
            axis,
            cost.latency,
            cost.volume,
            draws,
            min(rate, cap),
            cost.gpu_share,
            cost.algorithm,
            cap,
            op,
            size,
            name,
        )

    def _efficiency(self, link_class: int, cost: CollectiveCost, shape: GroupShape) -> float:
        """Achieved fraction of a link's capacity; host links count as scale-up where no network is crossed."""
        kind = self.communicators.topology.link_kind(int(self.link_representatives[link_class]))
        inside = ("scale_up", "mesh", "host") if shape.num_nodes == 1 else ("scale_up", "mesh")
        return cost.efficiency["scale_up" if kind.startswith(inside) else "nic"]

    def _rate_alone(self, layer: str, group: int, efficiency: dict[int, float]) -> float:
        """Bytes/s of the group while nothing else runs."""
        mine = self._rows_of(layer, group)
        return float(
            (self._achieved(layer, mine, efficiency) / self.folding.layers[layer].amount[mine]).min()
        )

    def _nominal_rate(self, layer: str, group: int, efficiency: dict[int, float]) -> float:
        """Bytes/s of the group while all groups of its axis run at once, whatever the folding."""
        rows, mine = self.folding.layers[layer], self._rows_of(layer, group)
        if layer not in self._totals:
            self._totals[layer] = np.zeros(len(self.links))
            for name, beside in self.folding.layers.items():
                if _at_once(name) == _at_once(layer):
                    self._totals[layer] += np.bincount(beside.link, beside.amount, len(self.links))
        return float((self._achieved(layer, mine, efficiency) / self._totals[layer][rows.link[mine]]).min())

    def _rows_of(self, layer: str, group: int) -> slice:
        """Where the links stand that the group draws on."""
        return slice(*np.searchsorted(self.folding.layers[layer].group, (group, group + 1)))

    def _achieved(self, layer: str, rows: slice, efficiency: dict[int, float]) -> NDArray[np.float64]:
        """Bytes/s of these links, as the operation achieves them."""
        links = self.folding.layers[layer].link[rows]
        achieved = np.array([efficiency[c] for c in self.folding.link_class[links].tolist()])
        return np.asarray(self.communicators.topology.capacity[self.links[links]] * achieved)


def _at_once(layer: str) -> str:
    """Equal for the layers whose groups all run at once: of one axis at all stages, of all parts of a tensor."""
    axis, _, pattern = layer.partition(":")
    name = axis.rsplit(" ", 1)[0] if axis.startswith("pairs ") else axis.partition("#")[0]
    return f"{name}:{pattern}"
