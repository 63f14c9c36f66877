"""What one node is: GPUs of one kind in one scale-up domain, with NICs (`hardware/nodes/*.yaml`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from simulator.description.base import Description, Named
from simulator.description.faults import raise_if_any
from simulator.description.quantities import Bytes, BytesPerSecond, Dollars, Seconds, Watts
from simulator.hardware.gpu import GPU
from simulator.hardware.nic import NIC


class Interconnect(Description):
    """How the GPUs of a node reach one another."""

    kind: Literal["nvswitch", "nvlink_mesh", "pcie", "none"] = Field(
        description="nvswitch: every GPU at full rate to any other through a switch; nvlink_mesh: direct "
        "links only, listed in links; pcie: through the host; none: one GPU."
    )
    in_network_reduction: bool = Field(
        default=False, description="The switch can add up what passes through it (NVLS, SHARP)."
    )
    latency: Seconds = Field(default=0.0, description="One way between two GPUs of the node, hardware alone.")
    root_bandwidth: BytesPerSecond | None = Field(
        default=None,
        description="pcie: what all traffic between GPUs of a node shares; null: every pair at full rate.",
    )
    links: tuple[tuple[int, int, int], ...] = Field(
        default=(), description="nvlink_mesh: [GPU, GPU, number of lanes], each pair once."
    )


class CPU(Description):
    """The host side of a node."""

    cores: int = Field(ge=1, description="Physical cores of all sockets.")
    memory: Bytes = Field(gt=0, description="Host memory.")
    memory_bandwidth: BytesPerSecond = Field(description="Peak host memory bandwidth of all sockets.")


class Storage(Description):
    """What a node reads data from and writes checkpoints to."""

    read_bandwidth: BytesPerSecond = Field(description="Sustained sequential reads.")
    write_bandwidth: BytesPerSecond = Field(description="Sustained sequential writes.")
    capacity: Bytes | None = Field(default=None, description="Size; null when it does not matter.")


class Node(Named):
    """One node, which is also one scale-up domain: a rack of 72 GPUs behind one switch is a node of 72."""

    gpu: GPU = Field(description="The GPU that every slot holds: a catalogue name or a mapping.")
    num_gpus: int = Field(ge=1, description="GPUs per node.")
    nic: NIC | None = Field(
        default=None, description="The NIC that every port has; null for a node without network."
    )
    num_nics: int = Field(
        default=0, ge=0, description="NICs per node. GPU g uses NIC floor(g x num_nics / num_gpus)."
    )
    nic_attachment: Literal["host_link", "gpu"] = Field(
        default="host_link",
        description="How GPUs reach their NICs: over their host link, or gpu: links of their own (ICI, MI250X).",
    )
    host_uplinks: int | None = Field(
        default=None,
        gt=0,
        description="Links to the host that the GPUs of a node share for copies, behind a switch or a socket, each as "
        "fast as one GPU's host_link. GPU g uses uplink floor(g x host_uplinks / num_gpus). One per GPU if left out.",
    )
    interconnect: Interconnect = Field(description="How the GPUs of the node reach one another.")
    cpu: CPU | None = Field(default=None, description="The host; needed for offload and data loading.")
    storage: Storage | None = Field(
        default=None, description="Local or mounted storage; needed for data and checkpoints."
    )
    power: Watts | None = Field(
        default=None, description="Drawn by everything but the GPUs; null when unknown."
    )
    price: Dollars | None = Field(
        default=None, description="Whole node with its GPUs; null: sum of its parts."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_if_any([*self._check_links(), *self._check_interconnect(), *self._check_mesh()])
        return self

    def _check_links(self) -> Iterator[tuple[str, str]]:
        if self.num_nics and self.nic is None:
            yield "num_nics", f"{self.num_nics} NICs of which kind? nic is missing"
        if self.host_uplinks is not None and self.host_uplinks > self.num_gpus:
            yield "host_uplinks", f"{self.host_uplinks} for {self.num_gpus} GPUs; at most one each"
        if self.nic is not None and not self.num_nics:
            yield "num_nics", f"how many {self.nic.name or 'NICs'} has the node?"

    def _check_interconnect(self) -> Iterator[tuple[str, str]]:
        kind = self.interconnect.kind
        if kind in ("nvswitch", "nvlink_mesh") and self.gpu.scale_up is None:
            yield (
                "interconnect.kind",
                f"{kind} needs scale_up links, which {self.gpu.name or 'the GPU'} lacks",
            )
        if kind == "none" and self.num_gpus > 1:
            yield (
                "interconnect.kind",
                f"{self.num_gpus} GPUs need an interconnect (nvswitch, nvlink_mesh, pcie)",
            )
        if self.interconnect.in_network_reduction and kind != "nvswitch":
            yield "interconnect.in_network_reduction", f"{kind} has no switch to reduce in"

    def _check_mesh(self) -> Iterator[tuple[str, str]]:
        links, kind = self.interconnect.links, self.interconnect.kind
        if kind == "nvlink_mesh" and not links:
            yield (
                "interconnect.links",
                "nvlink_mesh needs its links: [GPU, GPU, lanes] for each connected pair",
            )
        if kind != "nvlink_mesh" and links:
            yield "interconnect.links", f"{kind} takes no links; only nvlink_mesh does"
        seen: set[frozenset[int]] = set()
        for index, (a, b, lanes) in enumerate(links):
            key = f"interconnect.links.{index}"
            if a == b or not (0 <= a < self.num_gpus and 0 <= b < self.num_gpus):
                yield key, f"[{a}, {b}] is no pair of the GPUs 0 to {self.num_gpus - 1}"
            if lanes < 1:
                yield key, f"{lanes} lanes; at least 1 is needed"
            if frozenset((a, b)) in seen:
                yield key, f"the pair [{a}, {b}] is listed twice"
            seen.add(frozenset((a, b)))

    def uplink_of(self, gpu: int) -> int:
        """The index of the link to the host that GPU `gpu` shares with its neighbours."""
        return gpu * (self.host_uplinks or self.num_gpus) // self.num_gpus

    def nic_of(self, gpu: int) -> int:
        """The index of the NIC that GPU `gpu` sends through."""
        return gpu * self.num_nics // self.num_gpus

    def with_gpus(self, num_gpus: int) -> Node:
        """The node with only its first `num_gpus` GPUs, and the NICs that those use."""
        mesh = tuple(link for link in self.interconnect.links if max(link[0], link[1]) < num_gpus)
        kind = self.interconnect.kind if num_gpus > 1 and (mesh or not self.interconnect.links) else "none"
        update: dict[str, object] = {"links": mesh, "kind": kind}
        if kind == "none":
            update |= {"in_network_reduction": False, "links": ()}
            if num_gpus > 1:
                update["kind"] = "pcie"
        return self.model_copy(
            update={
                "num_gpus": num_gpus,
                "host_uplinks": self.uplink_of(num_gpus - 1) + 1 if self.host_uplinks else None,
                "num_nics": self.nic_of(num_gpus - 1) + 1 if self.num_nics else 0,
                "interconnect": self.interconnect.model_copy(update=update),
            }
        )
