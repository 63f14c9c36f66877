"""What all fabrics have in common, and the registry that `kind` picks from.

To add a fabric: one file with one registered class, whose `wire` adds its switches and links to the table.
"""

from __future__ import annotations

from simulator.description.base import Named
from simulator.description.registry import Registry
from simulator.hardware.links import LinkTable
from simulator.hardware.wiring import Ports, Wiring

FABRICS = Registry("fabric", "kind")


class Fabric(Named):
    """How the nodes are connected; each kind is one file, registered in FABRICS."""

    kind: str

    @property
    def max_nodes(self) -> int | None:
        """How many nodes the fabric can hold; None where it grows with the cluster."""
        return None

    @property
    def nodes_per_neighbourhood(self) -> int | None:
        """How many consecutive places share a leaf, unit or group; None where all places are alike."""
        return None

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """Add the fabric's switches and links to the table; say which of them traffic between ports takes."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is wired")
