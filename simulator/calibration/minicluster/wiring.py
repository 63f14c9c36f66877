"""Which namespaces, shaped links and routes does a cluster description become?

The simulator's own topology is turned into data that `lifecycle` can build: hosts (one per node), switches,
links, and for every ordered pair of hosts the path that the simulator routes its traffic over, hash
collisions included. So the measured and the predicted network are one description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.topology import Topology

MAX_HOSTS = 64
"""More hosts than this on one machine measure the machine's cores, not its links."""
HOST_INTERFACE = "eth0"

Pair = tuple[int, int]


class WiringError(ValueError):
    """The described cluster has no faithful counterpart on one machine; the message says which part and
    why."""


@dataclass(frozen=True)
class Host:
    """One node: a namespace with one rank behind one NIC. `rate` is that of the NIC, bytes/s per
    direction."""

    name: str
    address: str
    rate: float
    gpu: str = ""


@dataclass(frozen=True)
class Port:
    """The sending end of one direction of a link, where it is shaped to `rate` bytes/s.

    `pairs` are the (source host, destination host) pairs whose packets leave through here, ascending.
    """

    namespace: str
    interface: str
    peer: str
    rate: float
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Wiring:
    """`rates` maps (sending namespace, receiving namespace) to bytes/s, both directions of every cable;
    `paths` maps ordered pairs of host indices to the namespaces from the source to the destination, both
    included."""

    hosts: tuple[Host, ...]
    switches: tuple[str, ...]
    rates: Mapping[tuple[str, str], float]
    paths: Mapping[Pair, tuple[str, ...]] = field(repr=False)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (*(host.name for host in self.hosts), *self.switches)

    def cables(self) -> list[tuple[str, str]]:
        """Every connected pair of namespaces once."""
        return sorted({(min(ends), max(ends)) for ends in self.rates})

    def ports(self) -> list[Port]:
        """Every sending end with the pairs that cross it; those that nothing crosses are kept (they are
        idle)."""
        crossing: dict[tuple[str, str], list[Pair]] = {ends: [] for ends in self.rates}
        for pair, path in sorted(self.paths.items()):
            for ends in pairwise(path):
                crossing[ends].append(pair)
        ports, used = [], dict.fromkeys(self.namespaces, 0)
        for (here, there), pairs in sorted(crossing.items()):
            interface = f"p{used[here]}" if here in self.switches else HOST_INTERFACE
            used[here] += 1
            ports.append(Port(here, interface, there, self.rates[here, there], tuple(pairs)))
        return ports


def address_of(index: int) -> str:
    """IPv4 address of host `index`; every minicluster uses the same ones, in namespaces of its own."""
    return f"10.200.{index // 250}.{index % 250 + 1}"


def wiring_of(cluster: Cluster) -> Wiring:
    """Wire the cluster as the simulator's topology routes it.

    Raises WiringError for what namespaces cannot stand in for: several GPUs or NICs per node, flows that are
    split over several paths, or more hosts than one machine can drive.
    """
    from simulator.hardware.topology import build_topology

    _check_nodes(cluster)
    topology = build_topology(cluster)
    hosts = tuple(
        Host(f"n{i}", address_of(i), float(topology.capacity[topology.nic_out[i]]), node.gpu.name)
        for i, node in enumerate(cluster.nodes)
    )
    host_of_vertex = {int(topology.head[link]): i for i, link in enumerate(topology.nic_in)}
    rates: dict[tuple[str, str], float] = {}
    paths: dict[Pair, tuple[str, ...]] = {}
    for source, destination in permutations(range(len(hosts)), 2):
        path = [hosts[source].name]
        for link in _network_links(topology, source, destination):
            path.append(_namespace_of(topology, link, host_of_vertex))
            rates[path[-2], path[-1]] = float(topology.capacity[link])
        paths[source, destination] = tuple(path)
    for here, there in list(rates):
        rates.setdefault((there, here), rates[here, there])
    switches = tuple(sorted({name for ends in rates for name in ends} - {host.name for host in hosts}))
    return Wiring(hosts, switches, rates, paths)


def _check_nodes(cluster: Cluster) -> None:
    if cluster.total_nodes > MAX_HOSTS:
        raise WiringError(f"more than {MAX_HOSTS} nodes: one machine cannot keep their links busy")
    if cluster.total_nodes < 2:
        raise WiringError("a minicluster needs at least two nodes")
    for node in cluster.nodes:
        if node.num_gpus != 1 or node.num_nics != 1:
            raise WiringError(
                f"a minicluster node is one rank behind one NIC, this one has {node.num_gpus} GPUs and "
                f"{node.num_nics} NICs: ranks of one namespace would talk over an unshaped loopback"
            )


def _namespace_of(topology: Topology, link: int, host_of_vertex: Mapping[int, int]) -> str:
    """The namespace a link leads to: a host by its index, a switch by the topology's name (`leaf[3]` →
    `leaf-3`)."""
    head = int(topology.head[link])
    if head in host_of_vertex:
        return f"n{host_of_vertex[head]}"
    vertex = topology.link_name(link).rpartition(" → ")[2]
    return re.sub(r"[^a-z0-9]+", "-", vertex.lower()).strip("-")


def _network_links(topology: Topology, source: int, destination: int) -> list[int]:
    """Links from NIC to NIC; those between a GPU and its host are left out, as the rank is the host."""
    import numpy as np

    routes = topology.routes(np.array([source]), np.array([destination]))
    if not (routes.share == 1.0).all():
        raise WiringError(
            f"the fabric splits the flow from node {source} to node {destination} over several paths; "
            "a TCP flow takes one (ecmp: hashed, paths_per_flow: 1)"
        )
    inside = set(topology.host_out.tolist()) | set(topology.host_in.tolist())
    return [link for link in routes.link.tolist() if link not in inside]
