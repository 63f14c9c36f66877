"""How a fabric joins the ports of the nodes: what it is given, and what it has to return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.hardware.links import FloatArray, IntArray

Block = tuple[IntArray, IntArray, FloatArray | float]
"""(index into the flows asked for, link id, share of the flow that crosses the link), in path order."""

Paths = Callable[[IntArray, IntArray, IntArray], list[Block]]
"""(source port, destination port, flow key) → blocks. Ports lie on different nodes; the key seeds hashes."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where nodes plug into the fabric, one entry per port: a NIC, or the NICs that one GPU owns, bundled.

    `node` is the port's node, `place` where in the fabric that node sits (0 … num_nodes - 1), `rail` the
    port's position in its node, `bandwidth` that of its NICs in bytes/s and direction.
    """

    node: IntArray
    place: IntArray
    rail: IntArray
    bandwidth: FloatArray
    num_nodes: int

    def __len__(self) -> int:
        return len(self.node)

    @property
    def in_order(self) -> bool:
        """Whether nodes sit in the fabric in their own order."""
        return bool((self.node == self.place).all())

    def halves(self) -> tuple[float, float]:
        """NIC bandwidth of the first and of the second half of the nodes."""
        lower = self.node < self.num_nodes // 2
        return float(self.bandwidth[lower].sum()), float(self.bandwidth[~lower].sum())


@dataclass(frozen=True, slots=True)
class Wiring:
    """A fabric over given ports.

    `attachment[port]` is the vertex the port's NIC is plugged into and `entry_latency` the seconds spent in
    the switch there. `rail_of_port` is null unless traffic should change rails over the scale-up network of
    its source node before it enters the fabric. `bisection` is the bandwidth (bytes/s, one direction) from
    the first half of the nodes to the second by the closed form of the fabric, NICs included; null where
    there is no closed form.
    """

    attachment: IntArray
    entry_latency: float
    paths: Paths
    rail_of_port: IntArray | None = None
    bisection: float | None = None


def hashed_choice(key: IntArray, num_choices: int, seed: int = 0) -> IntArray:
    """A choice in 0 … num_choices - 1 per key, as an ECMP hash makes it: fixed by key and seed, even overall.

    Keys and seed pass through the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) one after the
    other.
    """
    salt = _mix(np.array([seed], dtype=np.int64).astype(np.uint64))
    return (_mix(_mix(key.astype(np.uint64)) ^ salt) % np.uint64(num_choices)).astype(np.int64)


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
