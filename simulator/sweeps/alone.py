"""How fast can a collective of a process group be at best? Alone, and limited by its own members' ports only.

The same algorithms and prices as the program's, without the routes of the whole cluster and without folding: what
other groups, and switches between nodes, take from it can only make it slower. So a chain priced with these transfers
is never longer than the one that the engine runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives import CollectiveCost, GroupShape
from simulator.costs.collectives.patterns import edges
from simulator.hardware.topology import Topology
from simulator.program.chains import Transfer
from simulator.program.group_shapes import group_shapes
from simulator.program.link_loads import TREES, Loads, evened, link_loads
from simulator.ranks.grid import Grid

Ints = NDArray[np.int64]
CostModel = Callable[[str, float, GroupShape], CollectiveCost]

OWN = ("scale_up", "mesh", "host", "nic")
"""Kinds of links that belong to one GPU or NIC; those of the fabric depend on where in it a group lies."""

NOTHING = Transfer("", 0.0, 0.0, (), 1.0, 0.0)


@dataclass
class AloneGroups:
    """The groups [groups, size] of one axis: one of each kind, and what a byte of volume costs on its ports."""

    topology: Topology
    members: Ints
    cost_model: CostModel
    number: int
    shapes: list[GroupShape] = field(init=False)
    shape_of_group: Ints = field(init=False)
    _kinds: list[tuple[int, int]] = field(init=False)  # (group, its shape)
    _ports: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _crowds: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _transfers: dict[tuple[str, float, int], Transfer] = field(default_factory=dict)
    _fastest: dict[tuple[str, str, float], Transfer | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes, which = group_shapes(self.topology, self.members)
        self.shape_of_group = which
        if len(self.topology.nodes) == 1:  # groups of one shape have equal ports
            self._kinds = [(int(np.argmax(which == shape)), shape) for shape in range(len(self.shapes))]
        else:
            self._kinds = list(enumerate(which.tolist()))

    @property
    def size(self) -> int:
        return int(self.members.shape[1])

    def transfer(self, axis: str, op: str, size: float) -> Transfer | None:
        """The fastest of the groups; None where nothing moves."""
        key = (axis, op, size)
        if key not in self._fastest:
            self._fastest[key] = self.fastest(axis, op, size, range(len(self._kinds)))
        return self._fastest[key]

    def fastest(self, axis: str, op: str, size: float, kinds: Sequence[int]) -> Transfer | None:
        """The fastest of the given `kinds` (positions among the distinct groups)."""
        if self.size < 2 or size <= 0.0:
            return None
        found = min((self._priced(op, size, kind) for kind in kinds), key=lambda one: one.seconds)
        if not found.seconds:
            return None
        return Transfer(
            axis, found.latency, found.work, found.draws, found.rate, found.gpu_share, found.algorithm
        )

    def crowded_seconds(self, op: str, size: float) -> float:
        """The slowest of the groups while all of them run at once (what the program expects of its own groups)."""
        if self.size < 2 or size <= 0.0:
            return 0.0
        slowest = 0.0
        for shape, described in enumerate(self.shapes):
            cost = self.cost_model(op, size, described)
            inside, outside = self._crowd(cost.pattern)[shape] if cost.pattern != "none" else (0.0, 0.0)
            per_byte = (
                max(inside / cost.efficiency["scale_up"], outside / cost.efficiency["nic"]) * cost.stretch
            )
            slowest = max(slowest, cost.latency + max(0.0, cost.volume) * per_byte)
        return slowest

    def kinds_of(self, groups: Ints) -> list[int]:
        """The distinct kinds among some groups (indices into `members`)."""
        if len(self.topology.nodes) == 1:
            return np.unique(self.shape_of_group[groups]).tolist()
        return groups.tolist()

    def latency(self, op: str, size: float) -> float:
        """Of a collective of a few bytes."""
        if self.size < 2:
            return 0.0
        return min(self.cost_model(op, size, shape).latency for shape in self.shapes)

    def _priced(self, op: str, size: float, kind: int) -> Transfer:
        key = (op, size, kind)
        if key not in self._transfers:
            cost = self.cost_model(op, size, self.shapes[self._kinds[kind][1]])
            self._transfers[key] = self._transfer(cost, kind)
        return self._transfers[key]

    def _transfer(self, cost: CollectiveCost, kind: int) -> Transfer:
        inside = outside = 0.0
        if cost.pattern != "none":
            inside, outside = self._own_ports(cost.pattern)[kind]
        at_ports = {
            "scale_up": inside / cost.efficiency["scale_up"],
            "nic": outside / cost.efficiency["nic"],
        }
        limit = max(at_ports, key=lambda kind: at_ports[kind])
        per_byte = at_ports[limit] * cost.stretch
        if cost.volume <= 0.0 or per_byte <= 0.0:
            return Transfer("", cost.latency, 0.0, (), 1.0, 0.0, cost.algorithm)
        name = f"{cost.pattern} {limit} {cost.stretch}"  # transfers of one name fill the same port
        return Transfer("", cost.latency, cost.volume, (), 1.0 / per_byte, cost.gpu_share, name)

    def _own_ports(self, pattern: str) -> list[tuple[float, float]]:
        """Per kind: seconds per byte of volume at full efficiency, on the busiest scale-up port and NIC of a group."""
        if pattern not in self._ports:
            members = self.members[[group for group, _ in self._kinds]]
            shapes = np.array([shape for _, shape in self._kinds])
            group, link, amount = self._loads(pattern, members)
            own = np.array([name.startswith(OWN) for name in self.topology.kind_names], dtype=bool)
            kept = own[self.topology.kind[link]]
            seconds = amount[kept] / self.topology.capacity[link[kept]]
            self._ports[pattern] = self._busiest(group[kept], link[kept], seconds, shapes)
        return self._ports[pattern]

    def _crowd(self, pattern: str) -> list[tuple[float, float]]:
        """Per shape: the same on any link, while all groups of the axis send."""
        if pattern not in self._crowds:
            group, link, amount = self._loads(pattern, self.members)
            total = np.bincount(link, weights=amount, minlength=self.topology.num_links)
            seconds = total[link] / self.topology.capacity[link]
            found = np.array(self._busiest(group, link, seconds, self.shape_of_group))
            self._crowds[pattern] = [
                (float(here[:, 0].max()), float(here[:, 1].max()))
                for here in (found[self.shape_of_group == shape] for shape in range(len(self.shapes)))
            ]
        return self._crowds[pattern]

    def _loads(self, pattern: str, members: Ints) -> Loads:
        loads, _ = link_loads(self.topology, edges(pattern, members, self.topology.gpu_node), pattern)
        return evened(self.topology, loads) if pattern in TREES else loads

    def _busiest(
        self, group: Ints, link: Ints, seconds: NDArray[np.float64], shapes: Ints
    ) -> list[tuple[float, float]]:
        """The largest of `seconds` (of each group on each link) inside nodes and outside; `shapes` are the groups'."""
        names, kind = self.topology.kind_names, self.topology.kind[link]
        on_node = np.array([shape.num_nodes == 1 for shape in self.shapes])[shapes]
        # As in the program: host links count as scale-up where no network is crossed.
        is_host = np.array([name.startswith("host") for name in names], dtype=bool)[kind]
        is_scale_up = np.array([name.startswith(("scale_up", "mesh")) for name in names], dtype=bool)[kind]
        inside = is_scale_up | (is_host & on_node[group])
        found = np.zeros((2, len(shapes)))
        np.maximum.at(found[0], group[inside], seconds[inside])
        np.maximum.at(found[1], group[~inside], seconds[~inside])
        return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


class AloneCommunicators:
    """The process groups of grids on one topology; grids share those of an axis that are the same in any order."""

    def __init__(self, topology: Topology, cost_model: CostModel) -> None:
        self.topology = topology
        self.cost_model = cost_model
        self._by_axis: dict[tuple[Grid, str], AloneGroups] = {}
        self._by_members: dict[tuple[int, bytes], AloneGroups] = {}

    def groups(self, grid: Grid, axis: str) -> AloneGroups:
        key = (grid, axis)
        if key not in self._by_axis:
            members = grid.groups(axis)
            if not axis.startswith("pair"):  # whose order tells the stages
                members = members[np.argsort(members[:, 0])]
            same = (members.shape[1], blake2b(members.tobytes(), digest_size=16).digest())
            if same not in self._by_members:
                self._by_members[same] = AloneGroups(
                    self.topology, members, self.cost_model, len(self._by_members)
                )
            self._by_axis[key] = self._by_members[same]
        return self._by_axis[key]


@dataclass(frozen=True)
class GridTransfers:
    """Stands in for folded communicators where a chain is priced: every rank class is the same."""

    communicators: AloneCommunicators
    grid: Grid

    def transfer(
        self, axis: str, op: str, size: float, rank_class: int = 0, place: int | None = None
    ) -> Transfer | None:
        return self.communicators.groups(self.grid, axis).transfer(axis, op, size)

    def seconds(self, axis: str, op: str, size: float) -> float:
        found = self.transfer(axis, op, size)
        return 0.0 if found is None else found.seconds

    def crowded_seconds(self, axis: str, op: str, size: float) -> float:
        return self.communicators.groups(self.grid, axis).crowded_seconds(op, size)

    def latency(self, axis: str, op: str, size: float) -> float:
        return self.communicators.groups(self.grid, axis).latency(op, size)

    def hops(self, step: int, size: float) -> NDArray[np.float64]:
        """Seconds of a transfer from each stage to the one `step` (+1 or -1) away, shape [pp]."""
        groups = self.communicators.groups(self.grid, f"pair{step:+d}")
        stages = self.grid.pp
        out = np.zeros(stages)
        for stage in range(stages):
            found = groups.fastest(
                "pp", "send_recv", size, groups.kinds_of(np.arange(stage, len(groups.members), stages))
            )
            out[stage] = 0.0 if found is None else found.seconds
        return out
