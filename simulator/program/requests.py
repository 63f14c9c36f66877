"""Which collectives and messages of which sizes does a step need? Ranks and links are folded for these."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.program.communicators import Request
from simulator.program.exchange import exchanges
from simulator.program.handing_out import messages
from simulator.program.offload import offload_requests
from simulator.program.servers import server_requests
from simulator.program.setting import Setting
from simulator.program.sharding import gather_of, gathers, shares
from simulator.program.units import Placed, Unit, content_of, identity
from simulator.workloads.operators import Collective


def requests(setting: Setting) -> Iterator[Request]:
    """Every distinct (axis, operation, bytes) of the step."""
    packs = setting.distinct_packs
    every = [content for pack in packs for stage in setting.content_of(pack) for content in stage]
    placed = {identity([one]): one for content in every for one in content.layers}
    for one in placed.values():
        yield from _of_layer(one)
    full = [content for stage in setting.content for content in stage]
    units = {content_of(unit): unit for chunk in full for unit in (*chunk.units, chunk.whole)}
    shared = {request for unit in units.values() for request in _of_unit(setting, unit)}
    if setting.hands_out_messages:
        shared |= {request for stage in range(setting.plan.pp) for request in _handed_out(setting, stage)}
    yield from sorted(shared)
    yield from offload_requests(setting)
    yield from server_requests(setting)
    yield from _of_pipeline(setting)


def _of_layer(placed: Placed) -> Iterator[Request]:
    layer, shard = placed.layer, placed.shard
    for operation in (*layer.forward(shard), *layer.recompute(shard), *layer.backward(shard)):
        if isinstance(operation.what, Collective):
            yield operation.what.axis, operation.what.op, operation.what.size


def _of_unit(setting: Setting, unit: Unit) -> Iterator[Request]:
    """What sums its gradients, averages and gathers its parameters."""
    for is_last, step in ((False, 0), *((True, step) for step in range(setting.num_groupings))):
        for chain in exchanges(setting, unit, is_last, step):
            for one in chain:
                yield one.axis, one.op, one.size
    for axis in setting.gossip_axes:
        yield axis, "shift", unit.parameters.total * setting.averaged_size
    if setting.plan.synchronisation.scheme == "local":
        yield "dp", "all_reduce", unit.parameters.total * setting.averaged_size
    if not setting.plan.zero or setting.hands_out_messages:
        return
    for direction in ("forward", "backward"):
        for axis, count in gathers(setting, unit, direction):
            op, number = gather_of(setting, count)
            yield axis, op, number * setting.parameter_size


def _handed_out(setting: Setting, stage: int) -> Iterator[Request]:
    for share in shares(setting, stage):
        for axis in messages(share, setting.grid.size(share.axis)):
            yield axis, "send_recv", share.count * setting.parameter_size


def _of_pipeline(setting: Setting) -> Iterator[Request]:
    """What stages send one another."""
    packs = setting.distinct_packs
    for size in dict.fromkeys(size for pack in packs for size in setting.boundary_bytes_of(pack)):
        for axis in _pair_axes(setting):
            yield axis, "send_recv", size
        if setting.scatter > 1:
            yield "tp", "all_gather", size * setting.scatter
    if setting.tied_bytes:
        yield "tied", "all_reduce", setting.tied_bytes
    for size in filter(None, map(setting.twin_bytes, range(setting.plan.pp))):
        yield "twins", "all_reduce", size


def _pair_axes(setting: Setting) -> list[str]:
    """Every axis on which neighbouring parts exchange, in both directions."""
    placement, found = setting.placement, {}
    for stage, held in enumerate(placement.parts):
        for chunk in range(len(held)):
            for step in (1, -1):
                peer = placement.neighbour(stage, chunk, step)
                if peer is not None and peer[0] != stage:
                    found[setting.pair_axis(stage, peer[0])] = True
    return list(found)
