"""What a collective of a given size costs: the algorithm and protocol that the library would take."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.costs.collectives.algorithm import ALGORITHMS, OPERATIONS, Movement, refusal
from simulator.costs.collectives.group import NOTHING, CollectiveCost, GroupShape, bandwidth_seconds
from simulator.costs.collectives.library import CollectiveCalibration, OperationFactors, Protocol
from simulator.costs.collectives.patterns import loads

PLAIN = OperationFactors()
MADE_OF = {"shift": "send_recv", "broadcast_each": "broadcast"}
"""Operations that a library carries out as several of another, and is measured on that one."""


def collective_cost(
    op: str, size: float, group: GroupShape, library: CollectiveCalibration
) -> CollectiveCost:
    """The cheapest way that the library knows to do `op` on `size` bytes (conventions: operators.Collective).

    One rank or no bytes cost nothing. Raises ValueError for an unknown operation, a negative size, or a group
    that none of the library's algorithms for the operation can serve (with each one's reason).
    """
    if op not in OPERATIONS:
        raise ValueError(f"unknown collective {op!r} (known: {', '.join(OPERATIONS)})")
    if not size >= 0.0:
        raise ValueError(f"the size of a collective cannot be {size} bytes")
    if group.num_ranks == 1 or size == 0.0:
        return NOTHING
    options = list(candidates(op, size, group, library))
    if not options:
        reasons = "; ".join(
            str(refused(name, op, group, library)) for name in library.choices.get(MADE_OF.get(op, op), ())
        )
        raise ValueError(f"{library.name} cannot do {op}: {reasons or 'no algorithm is given for it'}")
    return min(options, key=lambda cost: collective_seconds(cost, group))


def collective_seconds(cost: CollectiveCost, group: GroupShape) -> float:
    """How long the collective takes alone: latency, then the busiest link's bytes at its achieved rate."""
    scale_up, nic = loads(cost.pattern, group)
    moving = bandwidth_seconds(scale_up * cost.volume, nic * cost.volume, cost.efficiency, group)
    return cost.latency + cost.stretch * moving


def refused(name: str, op: str, group: GroupShape, library: CollectiveCalibration) -> str | None:
    """Why the library does not use the algorithm `name` here, or None."""
    reason = refusal(name, op, group)
    if reason is None and name == "tree" and group.num_nodes == 1 and len(library.choices[op]) > 1:
        return "tree on one node is a chain: a ring with less bandwidth"
    if reason is None and name == "in_network" and group.ranks_per_node < library.in_network_min_ranks:
        return f"in_network needs {library.in_network_min_ranks} ranks per node, got {group.ranks_per_node}"
    return reason


def candidates(
    op: str, size: float, group: GroupShape, library: CollectiveCalibration
) -> Iterator[CollectiveCost]:
    """The cost under every algorithm and protocol that the library would consider at this size."""
    measured = MADE_OF.get(op, op)
    factors = library.operations.get(measured, PLAIN)
    taken = _taken(measured, size, group, library)
    for name in _algorithms(measured, size, group, library):
        if refused(name, op, group, library) is None:
            movement = ALGORITHMS[name].movement(op, size, group)
            for protocol, rates in considered(library.algorithms[name], taken).items():
                yield cost_of(name, protocol, size, rates, factors, movement, group, library)


def _algorithms(op: str, size: float, group: GroupShape, library: CollectiveCalibration) -> tuple[str, ...]:
    """The algorithms among which the fastest counts: without trees where the library's tuner takes a ring.

    As with protocols the time can then only jump up where the tuner changes its mind.
    """
    names = library.choices.get(op, ())
    if op != "all_reduce" or set(names) != {"ring", "tree"} or library.tuner is None:
        return names
    known = group.num_nodes > 1 and group.num_nics > 0 and group.nic_bandwidth > 0.0
    return ("ring",) if known and library.tuner.prefers_ring(size, group) else names


BY_SIZE = ("ll", "ll128", "simple")
"""Protocols by what they are for: the earlier ones trade bandwidth for latency (flags travel with the data)."""


def _taken(op: str, size: float, group: GroupShape, library: CollectiveCalibration) -> str | None:
    """The protocol that the library's tuner takes on one node; None where it takes the fastest."""
    if library.tuner is None or group.num_nodes > 1:
        return None
    reduces = (
        "in_network" in library.choices.get(op, ()) and refused("in_network", op, group, library) is None
    )
    return library.tuner.protocol(op, size, group.num_ranks, reduces)


def considered(protocols: dict[str, Protocol], taken: str | None) -> dict[str, Protocol]:
    """The protocols among which the fastest counts: the one that the tuner takes and those for larger sizes.

    The time can then only jump up where the tuner changes to another, never down.
    """
    if taken is None:
        return protocols
    later = BY_SIZE[BY_SIZE.index(taken) :]
    return {name: rates for name, rates in protocols.items() if name in later} or protocols


def cost_of(
    algorithm: str,
    protocol: str,
    size: float,
    rates: Protocol,
    factors: OperationFactors,
    movement: Movement,
    group: GroupShape,
    library: CollectiveCalibration,
) -> CollectiveCost:
    """The cost of one movement at given rates, of an operation on `size` bytes.

    Time = base + (hops^q + transfer^q)^(1/q), q of the protocol in a node, of the library across nodes. The
    transfer time is what the busiest link needs at its achieved rate; everything else counts as latency, during
    which no link is held.
    """
    scale_up, nic = loads(movement.pattern, group)
    crowd = max(1.0, group.ranks_per_node / 2) ** -library.crowding
    cached = _cached(protocol, size, movement, group, library)
    lit = 1.0  # share of a node's NICs that the library's rings and trees pass through
    if library.network_rings is not None and movement.pattern not in ("direct", "pair"):
        lit = min(1.0, library.network_rings / group.ranks_per_node)
    efficiency = {
        "scale_up": rates.scale_up * factors.scale_up * crowd * cached,
        "nic": rates.nic * factors.nic * lit,
    }
    if factors.local is not None and scale_up > 0.0:
        # The copy of a rank's own part passes through the same SMs as what it sends, one after the other.
        own = movement.local / (factors.local * (library.scale_up_bandwidth or group.scale_up_bandwidth))
        sent = scale_up * movement.volume / (group.scale_up_bandwidth * efficiency["scale_up"])
        efficiency["scale_up"] *= sent / (sent + own)
    transfer = bandwidth_seconds(scale_up * movement.volume, nic * movement.volume, efficiency, group)
    transfer *= movement.stretch
    hop = rates.hop if group.num_nodes == 1 or rates.multi_node_hop is None else rates.multi_node_hop
    network_hop = rates.network_hop + rates.network_trips * group.hop_latency
    hops = movement.steps * hop + movement.network_steps * network_hop
    base = rates.base + (rates.network_base if group.num_nodes > 1 else 0.0)
    exposed = (
        combined(hops, transfer, rates.overlap if group.num_nodes == 1 else library.network_overlap)
        - transfer
    )
    return CollectiveCost(
        algorithm=algorithm,
        protocol=protocol,
        latency=base + exposed,
        pattern=movement.pattern,
        volume=movement.volume,
        efficiency=efficiency,
        gpu_share=library.gpu_share,
        stretch=movement.stretch,
    )


BUFFERED = 8
"""How many chunks of a ring lie in NCCL's buffers between two GPUs at a time (NCCL_STEPS)."""


def _cached(
    protocol: str, size: float, movement: Movement, group: GroupShape, library: CollectiveCalibration
) -> float:
    """Factor on the rate in a node where a ring's buffers lie in host memory and fit the host's caches.

    Each of n GPUs hands on chunks of 1/n of the message, so all buffers together take `BUFFERED` times the message
    (until they are full). Two GPUs reach one another's memory instead.
    """
    rings = movement.pattern not in ("direct", "pair") and protocol == "simple"
    if library.host_cache is None or not rings or group.num_nodes > 1 or group.num_ranks <= 2:
        return 1.0
    return library.host_cached if BUFFERED * size <= library.host_cache else 1.0


def combined(hops: float, transfer: float, exponent: float) -> float:
    """(hops^q + transfer^q)^(1/q), without overflow."""
    larger, smaller = max(hops, transfer), min(hops, transfer)
    if smaller <= 0.0 or exponent == 1.0:
        return larger + smaller
    return larger * (1.0 + (smaller / larger) ** exponent) ** (1.0 / exponent)
