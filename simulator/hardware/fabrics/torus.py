"""Nodes in a grid that wraps around, each linked to its neighbours in every dimension."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.links import FloatArray, IntArray, LinkTable
from simulator.hardware.wiring import Block, Ports, Wiring

AXES = "xyzuvw"


@FABRICS.register("torus")
class Torus(Fabric):
    """A torus of nodes with dimension-ordered routes."""

    kind: Literal["torus"] = Field("torus", description="Nodes in a wrapped-around grid.")
    dimensions: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1,
        max_length=len(AXES),
        description="Nodes along each dimension, the last counted fastest; the torus holds their product.",
    )
    bandwidth: BytesPerSecond = Field(description="Of one link between neighbours, per direction.")
    wrap: bool = Field(True, description="false: a mesh, without the links that close the rings.")
    hop_latency: Seconds = Field(description="From one node to its neighbour, one way.")

    @property
    def max_nodes(self) -> int:
        return prod(self.dimensions)

    def shape(self, num_nodes: int) -> tuple[int, ...]:
        """The grid that this many nodes fill: whole planes of the first dimension."""
        return (-(-num_nodes // prod(self.dimensions[1:])), *self.dimensions[1:])

    def closed(self, num_nodes: int) -> tuple[bool, ...]:
        """Which dimensions are rings: those of more than two nodes that are filled to the end."""
        sizes = zip(self.shape(num_nodes), self.dimensions, strict=True)
        return tuple(self.wrap and size == full > 2 for size, full in sizes)

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """Dimension-order routes the short way round; a distance of half a ring goes both ways, half each.

        A dimension of two has one link between its nodes, not two.
        """
        shape, closed = self.shape(ports.num_nodes), self.closed(ports.num_nodes)
        routers = table.add_vertices("router", *shape)
        links = [self._wire_axis(table, routers, axis, closed[axis]) for axis in range(len(shape))]

        def paths(source: IntArray, destination: IntArray, key: IntArray) -> list[Block]:
            here = np.array(np.unravel_index(ports.place[source], shape))
            there = np.array(np.unravel_index(ports.place[destination], shape))
            blocks: list[Block] = []
            for axis, size in enumerate(shape):
                for direction, (steps, share) in enumerate(
                    _ways(there[axis] - here[axis], size, closed[axis])
                ):
                    blocks += _walk(links[axis][direction], here, axis, steps, 1 - 2 * direction, share)
                here[axis] = there[axis]
            return blocks

        # The node's own router is entered with its first link, so the NIC adds no hop of its own.
        return Wiring(
            routers.ravel()[ports.place], 0.0, paths, bisection=self._bisection(ports, shape, closed[0])
        )

    def _wire_axis(self, table: LinkTable, routers: IntArray, axis: int, closed: bool) -> list[IntArray]:
        """Links to the next and the previous router along one axis, by position; -1 where there is none."""
        both = []
        for step in (1, -1):
            neighbour = np.roll(routers, -step, axis)
            keep = np.full(routers.shape, True)
            if not closed:
                edge = [slice(None)] * routers.ndim
                edge[axis] = slice(-1, None) if step == 1 else slice(0, 1)
                keep[tuple(edge)] = False
            ids = np.full(routers.shape, -1, dtype=np.int64)
            kind = f"torus_{AXES[axis]}"
            ids[keep] = table.add_links(
                kind, routers[keep], neighbour[keep], self.bandwidth, self.hop_latency
            )
            both.append(ids)
        return both

    def _bisection(self, ports: Ports, shape: tuple[int, ...], closed: bool) -> float | None:
        """Links across the middle of the first dimension (two cuts of a ring), or the NICs if less."""
        if shape[0] % 2 or ports.num_nodes != prod(shape) or not ports.in_order:
            return None
        return min(*ports.halves(), prod(shape[1:]) * (2 if closed else 1) * self.bandwidth)


def _ways(distance: IntArray, size: int, closed: bool) -> list[tuple[IntArray, FloatArray]]:
    """(steps, share) of each flow forwards, then backwards; zero steps the way it does not go."""
    if not closed:
        one = np.ones(len(distance))
        return [(np.maximum(distance, 0), one), (np.maximum(-distance, 0), one)]
    ahead = distance % size
    share = np.where(2 * ahead == size, 0.5, 1.0)
    return [
        (np.where(2 * ahead <= size, ahead, 0), share),
        (np.where(2 * ahead >= size, size - ahead, 0), share),
    ]


def _walk(
    links: IntArray, start: IntArray, axis: int, steps: IntArray, sign: int, share: FloatArray
) -> list[Block]:
    """The links that flows cross when they go `steps` from `start` along one axis."""
    position = start.copy()
    blocks: list[Block] = []
    for step in range(int(steps.max(initial=0))):
        flow = np.nonzero(steps > step)[0]
        blocks.append((flow, links[tuple(position[:, flow])], share[flow]))
        position[axis] = (position[axis] + sign) % links.shape[axis]
    return blocks
