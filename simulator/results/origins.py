"""Where do the numbers behind a prediction come from, and were any of them borrowed from other hardware?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.costs.collectives import library_for
from simulator.costs.kernels import calibration_for
from simulator.costs.software import load_software

if TYPE_CHECKING:
    from simulator.description.base import Named
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.node import Node
    from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class Origin:
    """One part of the model, the description it was taken from, and what that says about its numbers.

    `transferred_from`: the hardware they were measured on, where that is not the hardware of the cluster.
    """

    part: str
    name: str
    sources: tuple[str, ...]
    transferred_from: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Without the sources, which `clustersim show NAME` prints."""
        return {"part": self.part, "name": self.name, "transferred_from": self.transferred_from}


def origins(cluster: Cluster, workload: Workload) -> tuple[Origin, ...]:
    """Of the hardware, kernels, collectives and software, each description once."""
    nodes = [group.node for group in cluster.node_groups]
    found = [origin for node in nodes for origin in _of_node(node)]
    library = library_for(nodes[0], cluster.software)
    found += [
        Origin("fabric", cluster.fabric.name or cluster.fabric.kind, _sources(cluster.fabric, cluster)),
        Origin("collectives", library.name, _sources(library), library.transferred_from),
        Origin("software", workload.plan.software, _sources(load_software(workload.plan.software))),
    ]
    return tuple(dict.fromkeys(found))


def _of_node(node: Node) -> list[Origin]:
    gpu = node.gpu
    kernels = calibration_for(gpu)
    found = [
        Origin("gpu", gpu.name or gpu.architecture, _sources(gpu)),
        Origin("kernels", kernels.name, _sources(kernels), kernels.transferred_from),
        Origin("node", node.name or f"{node.num_gpus} GPUs", _sources(node)),
    ]
    if node.nic is not None:
        found.append(Origin("nic", node.nic.name or node.nic.vendor, _sources(node.nic)))
    return found


def _sources(*descriptions: Named) -> tuple[str, ...]:
    """`key: text` of everything that the descriptions say about their numbers."""
    return tuple(f"{key}: {text}" for one in descriptions for key, text in one.sources.items())
