"""Which collectives and messages of which sizes does a step need? Ranks and links are folded for these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from simulator.program.communicators import OWN_AXES, Request
from simulator.program.crossings import boundary, tied
from simulator.program.exchange import exchanges
from simulator.program.handing_out import messages
from simulator.program.offload import offload_requests
from simulator.program.servers import server_requests
from simulator.program.setting import Setting
from simulator.program.sharding import gather_of, gathers, shares, twin_bytes
from simulator.program.units import Placed, Unit, content_of, identity
from simulator.workloads.operators import Collective


def requests(settings: Iterable[Setting]) -> Iterator[Request]:
    """Every (axis, operation, bytes) of the step; `settings` of all stages."""
    for setting in settings:
        for axis, op, size in _of_setting(setting):
            if setting.view is not None and axis not in OWN_AXES:
                axis = setting.view.layout.axis_at(axis, setting.view.stage)
            yield axis, op, size


def _of_setting(setting: Setting) -> Iterator[Request]:
    packs = setting.distinct_packs
    every = [one for pack in packs for stage in setting.stages for one in setting.content_of(pack)[stage]]
    placed = {identity([one]): one for content in every for one in content.layers}
    for one in placed.values():
        yield from _of_layer(one)
    full = [content for stage in setting.stages for content in setting.content[stage]]
    units = {content_of(unit): unit for chunk in full for unit in (*chunk.units, chunk.whole)}
    shared = {request for unit in units.values() for request in _of_unit(setting, unit)}
    if setting.hands_out_messages:
        shared |= {request for stage in setting.stages for request in _handed_out(setting, stage)}
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
    placement = setting.placement
    for pack in setting.distinct_packs:
        for source, chunk, step in product(setting.stages, range(setting.num_chunks), (1, -1)):
            peer = placement.neighbour(source, chunk, step)
            if peer is None or peer[0] == source:
                continue
            target, part = peer[0], placement.parts[source][chunk]
            between = min(part, part + step)
            for axis, size in boundary(setting, source, target, between, pack):
                yield axis, "send_recv", size
            if setting.scatter > 1:
                yield "tp", "all_gather", setting.boundary_bytes_of(pack)[between] * setting.scatter
    if setting.tied_bytes and not setting.ends_differ:
        yield "tied", "all_reduce", setting.tied_bytes
    elif setting.tied_bytes:
        ends = (0, setting.plan.pp - 1)
        for source, target in (ends, ends[::-1]):
            if source in setting.stages:
                yield from ((axis, "send_recv", size) for axis, size in tied(setting, source, target))
    for size in filter(None, (twin_bytes(setting, stage) for stage in setting.stages)):
        yield "twins", "all_reduce", size
