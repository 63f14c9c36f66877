"""Which kinds of description there are: the folder of each, its class, and the keys that may name another.

Classes are imported when first asked for, so that listing the catalogue imports none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

    from simulator.description.registry import Registry


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of description.

    `read_by` is `module:name` of its class or Registry; empty where another part of the program reads the tree
    as it is. `references` are the keys (at any depth) whose string value names a description of the kind
    given. `registered_by` is the module whose import fills the registry.
    """

    name: str
    folder: str
    what: str
    read_by: str = ""
    references: tuple[tuple[str, str], ...] = ()
    registered_by: str = ""

    def owner(self) -> type[BaseModel] | Registry | None:
        """The class, or the registry of classes, that validates this kind."""
        if not self.read_by:
            return None
        if self.registered_by:
            import_module(self.registered_by)
        module, _, name = self.read_by.partition(":")
        found: type[BaseModel] | Registry = getattr(import_module(module), name)
        return found

    def classes(self) -> tuple[type[BaseModel], ...]:
        """Every class that a description of this kind may be read into."""
        from simulator.description.registry import Registry

        found = self.owner()
        if found is None:
            return ()
        return tuple(found.classes.values()) if isinstance(found, Registry) else (found,)

    def has_field(self, name: str) -> bool:
        return any(name in cls.model_fields for cls in self.classes())


_TABLE = (
    Kind("gpu", "hardware/gpus", "a GPU or other accelerator", "simulator.hardware.gpu:GPU"),
    Kind("nic", "hardware/nics", "a network card", "simulator.hardware.nic:NIC"),
    Kind(
        "node",
        "hardware/nodes",
        "GPUs and NICs of one node",
        "simulator.hardware.node:Node",
        (("gpu", "gpu"), ("nic", "nic")),
    ),
    Kind("fabric", "hardware/fabrics", "how nodes are connected", "simulator.hardware.fabrics:FABRICS"),
    Kind(
        "cluster",
        "hardware/clusters",
        "nodes and the fabric between them",
        "simulator.hardware.cluster:Cluster",
        (("node", "node"), ("fabric", "fabric")),
    ),
    Kind(
        "kernels",
        "hardware/calibrations/kernels",
        "how one GPU runs kernels",
        "simulator.costs.kernels.calibration:KernelCalibration",
    ),
    Kind(
        "collectives",
        "hardware/calibrations/collectives",
        "how a library runs collectives",
        "simulator.costs.collectives.library:CollectiveCalibration",
    ),
    Kind(
        "software",
        "hardware/calibrations/software",
        "what one software generation costs",
        "simulator.costs.software:SoftwareProfile",
    ),
    Kind(
        "interval",
        "hardware/calibrations/intervals",
        "how far off predictions may be",
        "simulator.results.interval:Interval",
    ),
    Kind(
        "model",
        "workloads/models",
        "layers and shapes",
        "simulator.workloads.model:FAMILIES",
        registered_by="simulator.workloads.models",
    ),
    Kind("lengths", "workloads/lengths", "how long documents are", "simulator.workloads.lengths:LENGTHS"),
    Kind("plan", "workloads/plans", "how a model is spread out", "simulator.workloads.plan:Plan"),
    Kind(
        "workload",
        "workloads/runs",
        "a model, a batch and a plan",
        "simulator.workloads.workload:Workload",
        (("model", "model"), ("plan", "plan"), ("lengths", "lengths")),
    ),
    Kind("sweep", "workloads/sweeps", "many designs to run", "simulator.sweeps.sweep:Sweep"),
    Kind(
        "study",
        "workloads/studies",
        "a published system and what it found",
        "simulator.studies.study:Study",
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _TABLE}

CALIBRATIONS = ("kernels", "collectives", "software")
"""The kinds that `calibration` stands for when one is looked up."""
