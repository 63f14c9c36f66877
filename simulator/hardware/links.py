"""Which directed links a cluster has: a table that topology builders fill block by block.

A link is one direction of something with a capacity: a NIC port, an NVLink port, or the bundle of equal
parallel cables between two switch tiers. It leads from a tail vertex to a head vertex, so that routes can be
checked to be connected paths and cuts can be compared with maximum flows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VertexBlock:
    """Vertices first … first + size - 1, named `name[i, j, ...]` by their position in `shape`."""

    name: str
    first: int
    shape: tuple[int, ...]


@dataclass(slots=True)
class LinkTable:
    """Links and vertices under construction; per link a `capacity` in bytes/s and a `latency` in seconds."""

    vertex_blocks: list[VertexBlock] = field(default_factory=list)
    num_vertices: int = 0
    num_links: int = 0
    kind_names: list[str] = field(default_factory=list)
    _kind: list[IntArray] = field(default_factory=list)
    _tail: list[IntArray] = field(default_factory=list)
    _head: list[IntArray] = field(default_factory=list)
    _capacity: list[FloatArray] = field(default_factory=list)
    _latency: list[FloatArray] = field(default_factory=list)

    def add_vertices(self, name: str, *shape: int) -> IntArray:
        """Create a block of vertices and return their ids, shaped as asked."""
        first, size = self.num_vertices, int(np.prod(shape))
        self.vertex_blocks.append(VertexBlock(name, first, shape))
        self.num_vertices += size
        return np.arange(first, first + size, dtype=np.int64).reshape(shape)

    def add_links(
        self,
        kind: str,
        tail: IntArray,
        head: IntArray,
        capacity: FloatArray | float,
        latency: FloatArray | float = 0.0,
    ) -> IntArray:
        """Create one link per element of the broadcast (tail, head); returns their ids in that shape.

        Raises ValueError where a capacity is not positive and finite: such a link could never be shared
        fairly.
        """
        tail, head, capacity, latency = np.broadcast_arrays(tail, head, capacity, latency)
        if capacity.size and not (np.isfinite(capacity).all() and (capacity > 0).all()):
            raise ValueError(f"{kind}: the capacity of a link must be positive and finite")
        if kind not in self.kind_names:
            self.kind_names.append(kind)
        first = self.num_links
        self.num_links += tail.size
        self._kind.append(np.full(tail.size, self.kind_names.index(kind), dtype=np.int64))
        self._tail.append(tail.ravel().astype(np.int64))
        self._head.append(head.ravel().astype(np.int64))
        self._capacity.append(capacity.ravel().astype(np.float64))
        self._latency.append(latency.ravel().astype(np.float64))
        return np.arange(first, self.num_links, dtype=np.int64).reshape(tail.shape)

    def columns(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
        """(kind code, tail, head, capacity, latency) over all links."""
        if not self.num_links:
            none, zero = np.zeros(0, dtype=np.int64), np.zeros(0)
            return none, none, none, zero, zero
        return (
            np.concatenate(self._kind),
            np.concatenate(self._tail),
            np.concatenate(self._head),
            np.concatenate(self._capacity),
            np.concatenate(self._latency),
        )


def vertex_name(blocks: list[VertexBlock], vertex: int) -> str:
    """The name of a vertex: its block's name and its position there, such as `leaf[3,0]`."""
    block = blocks[bisect_right([b.first for b in blocks], vertex) - 1]
    position = np.unravel_index(vertex - block.first, block.shape)
    return f"{block.name}[{','.join(str(int(i)) for i in position)}]" if block.shape else block.name
