"""Any network at all, given link by link."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from simulator.description.base import Description
from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.links import IntArray, LinkTable
from simulator.hardware.shortest_paths import ShortestPaths
from simulator.hardware.wiring import Block, Ports, Wiring


class Link(Description):
    """One cable. An end is a node (its number, from 0) or a switch (any name)."""

    source: int | str = Field(alias="from", description="Node number, or name of a switch.")
    target: int | str = Field(alias="to", description="Node number, or name of a switch.")
    bandwidth: BytesPerSecond = Field(description="Per direction.")
    latency: Seconds = Field(description="One way, the far end included.")
    both_ways: bool = Field(True, description="false: the link carries only from -> to.")


@FABRICS.register("links")
class Links(Fabric):
    """An explicit list of links; routes are shortest paths."""

    kind: Literal["links"] = Field("links", description="An explicit list of links.")
    links: tuple[Link, ...] = Field(min_length=1, description="Every link of the network.")
    ecmp: Literal["even", "hashed"] = Field(
        "even",
        description="even: flows split over equal shortest paths; hashed: each takes one, drawn by seed.",
    )
    seed: int = Field(0, description="Seed of the hash that picks a path where ecmp is hashed.")

    @property
    def max_nodes(self) -> int:
        ends = [end for link in self.links for end in (link.source, link.target)]
        return 1 + max((end for end in ends if isinstance(end, int)), default=-1)

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """Routes with the fewest links; a node's NICs meet in one point; other nodes may be passed through.

        Several cables between the same two ends are one bundle with the latency of the slowest. Raises
        ValueError (when routes are asked for) where no path leads from one node to another.
        """
        cables = self._cables()
        ends = {
            end: vertex for vertex, end in enumerate(dict.fromkeys(end for pair in cables for end in pair))
        }
        for place in range(ports.num_nodes):
            ends.setdefault(place, len(ends))
        vertices = table.add_vertices("end", len(ends))
        tail = np.array([ends[a] for a, _ in cables])
        head = np.array([ends[b] for _, b in cables])
        capacity, latency = np.array(list(cables.values())).T
        ids = table.add_links("link", vertices[tail], vertices[head], capacity, latency)
        network = ShortestPaths(tail, head, ids, len(ends))
        position = np.array([ends[place] for place in range(ports.num_nodes)])[ports.place]

        def paths(source: IntArray, destination: IntArray, key: IntArray) -> list[Block]:
            if self.ecmp == "even":
                return network.split_evenly(position[source], position[destination])
            return network.hashed(position[source], position[destination], key, self.seed)

        return Wiring(vertices[position], 0.0, paths)

    def _cables(self) -> dict[tuple[int | str, int | str], tuple[float, float]]:
        """(bandwidth, latency) per direction between two ends."""
        cables: dict[tuple[int | str, int | str], tuple[float, float]] = {}
        for link in self.links:
            pairs = [(link.source, link.target), (link.target, link.source)]
            for pair in pairs if link.both_ways else pairs[:1]:
                bandwidth, latency = cables.get(pair, (0.0, link.latency))
                cables[pair] = (bandwidth + link.bandwidth, max(latency, link.latency))
        return cables
