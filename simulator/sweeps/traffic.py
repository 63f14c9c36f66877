"""How long is a link busy at least, for what all groups of a grid put on it together?

A link carries no more than its capacity, so a step (or the stretch of it in which certain transfers happen) takes at
least the bytes on its busiest link over what that carries. Alone, and at its own members' ports, a collective may be
faster: where GPUs share a NIC or a host, and where the fabric is oversubscribed.

Only the busiest link of each kind is looked at; that is still a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives.patterns import edges
from simulator.hardware.topology import Topology
from simulator.program import host_copies
from simulator.program.link_loads import TREES, evened, link_loads
from simulator.ranks.grid import Grid
from simulator.sweeps.alone import AloneCommunicators

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_LINKS = 40
"""Links that are looked at; seconds are padded to this length."""

Rows = tuple[Ints, Ints, Floats]
"""(group, link, what a byte of the group's volume puts on the link), as in the program."""

Sent = tuple[str, str, float]
"""(axis, operation, bytes) of one collective, or of one rank's copy to or from its host (axis `host`)."""


@dataclass
class Crowd:
    """All groups of all axes of one grid at once; `copies` are the operations of the axis `host` that are used."""

    communicators: AloneCommunicators
    grid: Grid
    axes: tuple[str, ...]
    copies: tuple[str, ...] = ()
    links: Ints = field(init=False)
    _rows: dict[tuple[str, str], Rows] = field(init=False)
    _loads: dict[tuple[str, str], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        layers = [(axis, "ring") for axis in self.axes if self.grid.size(axis) > 1]
        layers += [(host_copies.AXIS, op) for op in self.copies]
        found = {layer: self._find_rows(*layer) for layer in layers}
        busiest = {link for rows in found.values() for link in self._busiest(*rows)}
        self.links = np.array(sorted(busiest)[:MOST_LINKS], dtype=np.int64)
        self._rows = {layer: self._wanted(*rows) for layer, rows in found.items()}

    @property
    def topology(self) -> Topology:
        return self.communicators.topology

    def seconds(self, sent: Mapping[Sent, Floats]) -> Floats:
        """Busy seconds by link, shape [MOST_LINKS], if every rank of stage s sends `times[s]` of each."""
        total = np.zeros(MOST_LINKS)
        if len(self.links):
            for one, times in sent.items():
                total[: len(self.links)] += times @ self._once(*one)
        return total

    def _once(self, axis: str, op: str, size: float) -> Floats:
        """Busy seconds [stages, links] if every group of a stage does it once."""
        if axis == host_copies.AXIS:
            found: Floats = size * self._load(axis, op)[0]
            return found
        groups = self.communicators.groups(self.grid, axis)
        found = np.zeros((self.grid.pp, len(self.links)))
        for number, shape in enumerate(groups.shapes if groups.size > 1 else ()):
            cost = self.communicators.cost_model(op, size, shape)
            if cost.pattern != "none" and cost.volume > 0.0:
                inside = ("scale_up", "mesh", "host") if shape.num_nodes == 1 else ("scale_up", "mesh")
                kinds = [self.topology.link_kind(int(link)) for link in self.links]
                achieved = [cost.efficiency["scale_up" if k.startswith(inside) else "nic"] for k in kinds]
                found += cost.volume * self._load(axis, cost.pattern)[number] / np.array(achieved)
        return found

    def _load(self, axis: str, pattern: str) -> Floats:
        """Seconds per byte of volume at full efficiency, [shapes of groups, stages, links]."""
        if (axis, pattern) not in self._loads:
            if (axis, pattern) not in self._rows:
                self._rows[axis, pattern] = self._wanted(*self._find_rows(axis, pattern))
            group, link, amount = self._rows.pop((axis, pattern))
            place = np.searchsorted(self.links, link)
            if axis == host_copies.AXIS:
                first, shape, shapes = group, np.zeros_like(group), 1
            else:
                groups = self.communicators.groups(self.grid, axis)
                first, shape, shapes = (
                    groups.members[group, 0],
                    groups.shape_of_group[group],
                    len(groups.shapes),
                )
            found = np.zeros((shapes, self.grid.pp, len(self.links)))
            np.add.at(found, (shape, self.grid.coordinate("pp")[first], place), amount)
            self._loads[axis, pattern] = found / self.topology.capacity[self.links]
        return self._loads[axis, pattern]

    def _find_rows(self, axis: str, pattern: str) -> Rows:
        if axis == host_copies.AXIS:
            layer = host_copies.copy_layer(self.topology, pattern)
            return layer.group, layer.link, layer.amount
        members = self.communicators.groups(self.grid, axis).members
        rows, _ = link_loads(self.topology, edges(pattern, members, self.topology.gpu_node), pattern)
        return evened(self.topology, rows) if pattern in TREES else rows

    def _wanted(self, group: Ints, link: Ints, amount: Floats) -> Rows:
        """Those of the links that are looked at, a few of thousands."""
        known = np.isin(link, self.links)
        return group[known], link[known], amount[known]

    def _busiest(self, group: Ints, link: Ints, amount: Floats) -> list[int]:
        """The busiest link of each kind."""
        used, which = np.unique(link, return_inverse=True)
        seconds = np.bincount(which, weights=amount) / self.topology.capacity[used]
        order = np.argsort(-seconds, kind="stable")
        kinds = self.topology.kind[used[order]]
        _, first = np.unique(kinds, return_index=True)
        return [int(one) for one in used[order[first]]]
