"""Which calibration prices the collectives of a node: a measured one, or the nearest generation's, carried over."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from simulator.costs.collectives.library import CollectiveCalibration
from simulator.description import catalogue
from simulator.description.loading import load

if TYPE_CHECKING:
    from simulator.hardware.node import Node

GENERATIONS = {
    "nccl": ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"),
    "rccl": ("cdna2", "cdna3"),
}
"""Library → the architectures it runs on, oldest first: neighbours lend each other their parameters."""

SUBSTITUTES = {
    "nvswitch": ("nvlink_mesh",),
    "nvlink_mesh": ("nvswitch",),
    "pcie": (),
    "none": ("nvswitch", "pcie"),
}
"""Interconnect → those whose parameters stand in for it, if none of its own are known."""


@lru_cache(maxsize=64)
def load_calibration(name: str) -> CollectiveCalibration:
    """The calibration `name` of the catalogue (or a path). Raises DescriptionError where there is none."""
    calibration: CollectiveCalibration = load("collectives", name)
    return calibration


def library_for(node: Node, name: str | None = None) -> CollectiveCalibration:
    """The calibration called `name`, or else the one for the node's GPU and interconnect.

    First one that lists the GPU by name, then one of its architecture and interconnect, then the nearest
    architecture's; rates are fractions of link bandwidth, so they scale with the datasheet, and latencies stay.
    What was not measured on the architecture and interconnect says so in `transferred_from`.
    Raises ValueError for an architecture that no library runs on.
    """
    if name is not None:
        return load_calibration(name)
    kind, gpu = node.interconnect.kind, node.gpu
    known = [load_calibration(entry) for entry in catalogue.names("collectives")]
    for calibration in known:
        if gpu.name in calibration.gpus and calibration.interconnect == kind:
            return calibration
    library = next((lib for lib, order in GENERATIONS.items() if gpu.architecture in order), None)
    if library is None:
        raise ValueError(
            f"no collective library is known for {gpu.architecture} GPUs; name one in `software`"
        )
    order = GENERATIONS[library]
    for interconnect in (kind, *SUBSTITUTES.get(kind, ())):
        usable = [c for c in known if c.library == library and c.interconnect == interconnect]
        if usable:
            nearest = min(usable, key=lambda c: _distance(order, gpu.architecture, c))
            if nearest.architecture == gpu.architecture and interconnect == kind:
                return nearest
            return nearest.model_copy(
                update={
                    "name": f"{nearest.name} for {gpu.name or gpu.architecture}",
                    "transferred_from": nearest.transferred_from or nearest.name,
                    "architecture": gpu.architecture,
                    "interconnect": kind,
                }
            )
    raise ValueError(f"no {library} calibration can stand in for {gpu.architecture} GPUs joined by {kind}")


def _distance(
    order: tuple[str, ...], architecture: str, calibration: CollectiveCalibration
) -> tuple[int, int, str]:
    """Generations apart; of two equally near the older one, then by name."""
    steps = order.index(calibration.architecture) - order.index(architecture)
    return abs(steps), steps, calibration.name
