"""What a cluster is: nodes, the fabric between them, and the places a job gets (`hardware/clusters/*.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simulator.description.base import Description, Named
from simulator.description.faults import KeyFaults, raise_if_any
from simulator.description.quantities import Dollars, Fraction
from simulator.hardware.fabrics import FABRICS, Fabric
from simulator.hardware.node import Node
from simulator.hardware.stragglers import Stragglers


class NodeGroup(Description):
    """Some equal nodes of a cluster that has several kinds."""

    node: Node = Field(description="The node: a catalogue name or a mapping.")
    num_nodes: int = Field(ge=1, description="How many of them.")


class Placement(Description):
    """Which places of the fabric the job's nodes take."""

    policy: Literal["packed", "spread", "random"] = Field(
        default="packed",
        description="packed: neighbours first; spread: dealt out over the leaves (groups) in turn; "
        "random: drawn by seed.",
    )
    seed: int = Field(default=0, description="Seed of the random policy.")


class Background(Description):
    """Traffic of other jobs, as the part of some links' capacity that it takes."""

    links: str = Field(
        description="Kind of link, as in utilisation: nic_out, leaf_up, leaf_down, spine_up, ..."
    )
    which: tuple[int, ...] = Field(
        default=(), description="Which of that kind, counted from 0 in the fabric's order; all if left out."
    )
    share: Fraction = Field(lt=1, description="Part of the capacity that is taken.")


class Cluster(Named):
    """A cluster of equal nodes (`node`, `num_nodes`) or of several kinds (`groups`)."""

    node: Node | None = Field(
        default=None, description="The node that all are equal to: a catalogue name or a mapping."
    )
    num_nodes: int | None = Field(default=None, ge=1, description="How many nodes, where all are equal.")
    groups: tuple[NodeGroup, ...] = Field(
        default=(), description="Instead of node and num_nodes: kinds of nodes."
    )
    fabric: Annotated[Fabric, FABRICS] = Field(description="How nodes are connected: a name or a mapping.")
    placement: Placement = Field(
        default=Placement(), description="Which places of the fabric the nodes take."
    )
    background: tuple[Background, ...] = Field(
        default=(), description="Links of which other jobs take a part, all the time."
    )
    stragglers: Stragglers | None = Field(
        default=None, description="How nodes are delayed from step to step; null: by the software's jitter."
    )
    software: str | None = Field(
        default=None, description="Collective library calibration; null: the runtime profile's own."
    )
    price: Dollars | None = Field(
        default=None, description="Fabric and everything but the nodes; null when unknown."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_if_any(self._check_nodes())
        raise_if_any([*self._check_network(), *self._check_fabric_holds_all()])
        return self

    def _check_nodes(self) -> Iterator[tuple[str, str]]:
        if self.groups and (self.node is not None or self.num_nodes is not None):
            yield "groups", "give either groups, or node and num_nodes"
        if not self.groups and self.node is None:
            yield "node", "which node? Give node and num_nodes, or groups"
        if not self.groups and self.num_nodes is None:
            yield "num_nodes", "how many nodes? Give node and num_nodes, or groups"

    def _check_network(self) -> Iterator[tuple[str, str]]:
        for index, group in enumerate(self.node_groups):
            if self.total_nodes > 1 and not group.node.num_nics:
                key = f"groups.{index}.node" if self.groups else "node"
                yield key, f"has no NIC, so {self.total_nodes} nodes cannot be connected"

    def _check_fabric_holds_all(self) -> Iterator[tuple[str, str]]:
        room = self.fabric.max_nodes
        if room is not None and self.total_nodes > room:
            yield "fabric", f"holds {room} nodes, but the cluster has {self.total_nodes}"

    @property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        """The nodes as groups, whichever way they were given."""
        if self.groups or self.node is None or self.num_nodes is None:
            return self.groups
        return (NodeGroup.model_construct(node=self.node, num_nodes=self.num_nodes),)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node in order; equal ones are the same object."""
        return tuple(group.node for group in self.node_groups for _ in range(group.num_nodes))

    @property
    def total_nodes(self) -> int:
        return sum(group.num_nodes for group in self.node_groups)

    @property
    def num_gpus(self) -> int:
        return sum(group.num_nodes * group.node.num_gpus for group in self.node_groups)

    def scaled(self, *, gpus: int) -> Cluster:
        """The cluster with `gpus` GPUs: more or fewer equal nodes, or groups in the same proportion.

        Raises KeyFaults (a ValueError) where whole nodes do not give that number; fewer GPUs than one node
        has give one node with only that many.
        """
        if gpus < 1:
            raise KeyFaults([("gpus", f"{gpus} GPUs; at least 1 is needed")])
        if gpus == self.num_gpus:
            return self
        scaled = self._scaled_groups(gpus) if len(self.node_groups) > 1 else self._scaled_nodes(gpus)
        raise_if_any(scaled._check_fabric_holds_all())
        return scaled

    def _scaled_nodes(self, gpus: int) -> Cluster:
        (group,) = self.node_groups
        node, per_node = group.node, group.node.num_gpus
        num_nodes, rest = divmod(gpus, per_node)
        if gpus < per_node:
            node, num_nodes = node.with_gpus(gpus), 1
        elif rest:
            near = f"{gpus - rest} or {gpus - rest + per_node}"
            message = f"{gpus} GPUs are {round(gpus / per_node, 2):.12g} nodes of {per_node}; try {near}"
            raise KeyFaults([("gpus", message)])
        changed = {"node": node, "num_nodes": num_nodes}
        if self.groups:
            return self.model_copy(update={"groups": (group.model_copy(update=changed),)})
        return self.model_copy(update=changed)

    def _scaled_groups(self, gpus: int) -> Cluster:
        total = self.num_gpus
        if any(group.num_nodes * gpus % total for group in self.groups):
            mix = " + ".join(f"{g.num_nodes} x {g.node.num_gpus}" for g in self.groups)
            message = f"{gpus} GPUs do not give whole nodes in the proportion of the groups ({mix} = {total})"
            raise KeyFaults([("gpus", message)])
        groups = tuple(g.model_copy(update={"num_nodes": g.num_nodes * gpus // total}) for g in self.groups)
        return self.model_copy(update={"groups": groups})
