"""Who takes part in a collective, what it costs, and how long it takes when nothing else runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """A process group as a collective sees it.

    `ranks_per_node` is the number of members on its fullest node, `scale_up_bandwidth` bytes/s per GPU and
    direction, `nic_bandwidth` bytes/s per direction of all NICs that the members of one node use together and
    `num_nics` how many those are (0: not known), `hop_latency` seconds from one node to the next (one way, NICs
    included).
    Raises ValueError where the members cannot be laid out so.
    """

    num_ranks: int
    num_nodes: int = 1
    ranks_per_node: int = 0  # 0: as even as possible
    scale_up_kind: str = "nvswitch"
    in_network_reduction: bool = False
    scale_up_bandwidth: float = 0.0
    nic_bandwidth: float = 0.0
    num_nics: int = 0
    hop_latency: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.num_nodes <= self.num_ranks:
            raise ValueError(f"{self.num_ranks} ranks cannot lie on {self.num_nodes} nodes")
        if self.ranks_per_node == 0:
            object.__setattr__(self, "ranks_per_node", -(-self.num_ranks // self.num_nodes))
        free = self.num_nodes * self.ranks_per_node - self.num_ranks
        if free < 0 or free > (self.num_nodes - 1) * (self.ranks_per_node - 1):
            raise ValueError(
                f"{self.num_ranks} ranks cannot lie on {self.num_nodes} nodes "
                f"with {self.ranks_per_node} on the fullest"
            )

    @property
    def node_of(self) -> IntArray:
        """[num_ranks] node of each member: nodes filled in order, at least one member on each."""
        return np.asarray(_layout(self.num_ranks, self.num_nodes, self.ranks_per_node), dtype=np.int64)


@lru_cache(maxsize=1024)
def _layout(num_ranks: int, num_nodes: int, ranks_per_node: int) -> tuple[int, ...]:
    nodes: list[int] = []
    for node in range(num_nodes):
        left, nodes_after = num_ranks - len(nodes), num_nodes - node - 1
        nodes += [node] * min(ranks_per_node, left - nodes_after)
    return tuple(nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """What one collective asks of the machine.

    It waits `latency` seconds, then moves `volume` x share bytes along every edge of `pattern` (see
    `patterns`); a link of kind k ("scale_up", "nic") is drawn on by bytes / `efficiency[k]`. `latency` is
    everything that is not the rate of the busiest link: launch, hops, filling of the pipeline.
    Links are never busier than 1 / `stretch` of what the busiest could carry (`Movement.stretch`).
    `gpu_share` is the fraction of a GPU that the collective takes from overlapped compute.
    """

    algorithm: str
    protocol: str
    latency: float
    pattern: str
    volume: float
    efficiency: Mapping[str, float] = field(default_factory=lambda: {"scale_up": 1.0, "nic": 1.0})
    gpu_share: float = 0.0
    stretch: float = 1.0


NOTHING = CollectiveCost(algorithm="none", protocol="none", latency=0.0, pattern="none", volume=0.0)
"""A collective of one rank, or of zero bytes."""


def bandwidth_seconds(
    scale_up_bytes: float, nic_bytes: float, efficiency: Mapping[str, float], group: GroupShape
) -> float:
    """Seconds that the busiest GPU port (`scale_up_bytes`) or node (`nic_bytes`, all its NICs) needs.

    Raises ValueError where bytes have to cross a link that the group does not have.
    """
    seconds = 0.0
    for kind, amount, bandwidth in (
        ("scale_up", scale_up_bytes, group.scale_up_bandwidth),
        ("nic", nic_bytes, group.nic_bandwidth),
    ):
        if amount > 0.0:
            if bandwidth <= 0.0:
                raise ValueError(f"{amount:.0f} bytes to move over {kind} links, but the group has none")
            seconds = max(seconds, amount / (bandwidth * efficiency[kind]))
    return seconds
