"""What a cluster comes to once it is wired: its GPUs, links and ports, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simulator.hardware.host_links import HostLinks
from simulator.hardware.links import FloatArray, IntArray, VertexBlock, vertex_name
from simulator.hardware.scale_up import NodeLinks
from simulator.hardware.wiring import Ports, Wiring

if TYPE_CHECKING:
    from simulator.hardware.gpu import GPU
    from simulator.hardware.node import Node


@dataclass(frozen=True)
class Wired:
    """A cluster's GPUs and links once it is wired.

    Per GPU: `gpu_node`, `gpu_local` (position in its node), `gpu_port` (index into `ports`, -1 without NIC),
    `gpu_hardware` (index into `hardware`) and the ids of its own links, -1 where it has no such link. Per
    link: `kind` (index into `kind_names`), `tail` and `head` (vertices), `capacity` in bytes/s and
    `latency_of_link` in seconds. Per node: `node_hardware` (index into `nodes`), `node_group` (index into
    `node_links`).
    """

    gpu_node: IntArray
    gpu_local: IntArray
    gpu_port: IntArray
    gpu_hardware: IntArray
    hardware: tuple[GPU, ...]
    node_hardware: IntArray
    nodes: tuple[Node, ...]
    kind: IntArray
    kind_names: tuple[str, ...]
    tail: IntArray
    head: IntArray
    capacity: FloatArray
    latency_of_link: FloatArray
    scale_up_out: IntArray
    scale_up_in: IntArray
    host_out: IntArray
    host_in: IntArray
    uplink_out: IntArray
    uplink_in: IntArray
    nic_out: IntArray
    nic_in: IntArray
    ports: Ports
    wiring: Wiring
    node_links: tuple[NodeLinks, ...]
    node_group: IntArray
    node_first_port: IntArray
    host: HostLinks
    _vertex_blocks: list[VertexBlock]

    @property
    def num_gpus(self) -> int:
        return len(self.gpu_node)

    @property
    def num_nodes(self) -> int:
        return len(self.node_hardware)

    @property
    def num_links(self) -> int:
        return len(self.kind)

    @property
    def bisection(self) -> float | None:
        """Bytes/s from the first half of the nodes to the second by closed form; null where there is none."""
        return self.wiring.bisection

    def link_kind(self, link: int) -> str:
        """The kind of a link: scale_up_out, nic_in, leaf_up, global, torus_x, ..."""
        return self.kind_names[self.kind[link]]

    def link_name(self, link: int) -> str:
        """Such as `leaf_up leaf[3] → spine[0,0]`."""
        tail, head = (vertex_name(self._vertex_blocks, int(ends[link])) for ends in (self.tail, self.head))
        return f"{self.link_kind(link)} {tail} → {head}"

    @cached_property
    def group_first_node(self) -> IntArray:
        return np.searchsorted(self.node_group, np.arange(len(self.node_links)))

    @cached_property
    def nic_behind_host(self) -> npt.NDArray[np.bool_]:
        """[num_gpus] whether the way to the NIC leads over the GPU's host link."""
        return np.array([node.nic_attachment == "host_link" for node in self.nodes])[
            self.node_hardware[self.gpu_node]
        ]

    @cached_property
    def joins_gpus(self) -> npt.NDArray[np.bool_]:
        return np.array([scale_up.joins_gpus for scale_up in self.node_links])[self.node_group]

    @cached_property
    def first_gpu_of_port(self) -> IntArray:
        return np.searchsorted(self.gpu_port, np.arange(len(self.ports)))

    @cached_property
    def num_gpus_of_port(self) -> IntArray:
        return np.bincount(self.gpu_port, minlength=len(self.ports))
