"""What all fabrics have in common, and the registry that `kind` picks from."""

from __future__ import annotations

from simulator.description.base import Description
from simulator.description.registry import Registry

FABRICS = Registry("fabric", "kind")


class Fabric(Description):
    """How the nodes are connected; each kind is one file, registered in FABRICS."""

    @property
    def max_nodes(self) -> int | None:
        """How many nodes the fabric can hold; None where it grows with the cluster."""
        return None
