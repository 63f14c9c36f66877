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
    "xla": ("tpu",),
    "gloo": ("cpu",),
}
"""Library → the architectures it runs on, oldest first: neighbours lend each other their parameters."""

SUBSTITUTES = {
    "nvswitch": ("nvlink_mesh",),
    "nvlink_mesh": ("nvswitch",),
    "pcie": (),
    "none": ("nvswitch", "pcie"),
}
"""Interconnect → those whose parameters stand in for it where its own are not known."""


@lru_cache(maxsize=64)
def load_calibration(name: str) -> CollectiveCalibration:
    """The calibration `name` of the catalogue (or a path). Raises DescriptionError where there is none."""
    calibration: CollectiveCalibration = load("collectives", name)
    return calibration


def library_for(node: Node, name: str | None = None) -> CollectiveCalibration:
    """The calibration called `name`, or else the nearest one to the node's GPU and interconnect.

    Nearest: lists the NIC by name; then the GPU; then fewest generations apart; then of the same interconnect; then
    measured rather than transferred. Rates are fractions of link bandwidth, so they scale with the datasheet, and
    latencies stay. What was not measured on the architecture and interconnect says so in `transferred_from`.
    Raises ValueError for an architecture that no library runs on.
    """
    if name is not None:
        return load_calibration(name)
    kind, gpu = node.interconnect.kind, node.gpu
    library = next((lib for lib, order in GENERATIONS.items() if gpu.architecture in order), None)
    if library is None:
        raise ValueError(
            f"no collective library is known for {gpu.architecture} GPUs; name one in `software`"
        )
    known = (load_calibration(entry) for entry in catalogue.names("collectives"))
    usable = [
        c for c in known if c.library == library and c.interconnect in (kind, *SUBSTITUTES.get(kind, ()))
    ]
    if not usable:
        raise ValueError(
            f"no {library} calibration can stand in for {gpu.architecture} GPUs joined by {kind}"
        )
    nearest = min(usable, key=lambda c: _distance(c, node))
    if nearest.architecture == gpu.architecture and (nearest.interconnect == kind or kind == "none"):
        return nearest
    return nearest.model_copy(
        update={
            "name": f"{nearest.name} for {gpu.name or gpu.architecture}",
            "transferred_from": nearest.transferred_from or nearest.name,
            "architecture": gpu.architecture,
            "interconnect": kind,
        }
    )


def _distance(calibration: CollectiveCalibration, node: Node) -> tuple[int, bool, int, bool, bool, int, str]:
    """How far a calibration is from a node; smaller is nearer. Of equals the older one, then by name."""
    gpu, order = node.gpu, GENERATIONS[calibration.library]
    steps = order.index(calibration.architecture) - order.index(gpu.architecture)
    named = node.nic is not None and node.nic.name in calibration.nics
    return (
        0 if named else 2 if calibration.nics else 1,
        gpu.name not in calibration.gpus,
        abs(steps),
        calibration.interconnect != node.interconnect.kind,
        calibration.transferred_from is not None,
        steps,
        calibration.name,
    )
