"""What data parallelism, the optimizer and the model's state cost each stage at least: seconds and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.costs.memory import gradient_copies, stage_state
from simulator.hardware.gpu import GPU
from simulator.program import sharding
from simulator.program.chains import Chain
from simulator.program.contents import units_of
from simulator.program.gradients import WHOLE
from simulator.program.optimizer import norm_chain, parameter_gather, update_chain
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.program.sharding import owned_parameters
from simulator.program.units import Placed, Unit, one_unit
from simulator.sweeps.alone import GridTransfers
from simulator.sweeps.layer_prices import pricing_on
from simulator.sweeps.layouts import Layout
from simulator.sweeps.unit_costs import NOTHING, Cost, UnitCosts, gathered_each
from simulator.workloads.layers import Layer
from simulator.workloads.synchronisation import Compression

Floats = NDArray[np.float64]
QUANTITIES = (
    "gather_before",  # seconds of gathers before the first unit can start
    "gather_chunk",  # ... before the last unit of the first chunk can
    "gather_each",  # seconds of gathers that every micro-batch takes on their lane
    "reduce_after",  # seconds of reductions after the last backward
    "reduce_chunk",  # ... after the beginning of the last backward
    "reduce_each",  # seconds of reductions that every micro-batch takes on their lane
    "reduce_late",  # ... of that, what may be under way when the last backward ends, at most
    "links_each",  # seconds for which gathers and reductions of a micro-batch together fill a link that both need
    "gather_forward",  # seconds of gathers that a forward of any chunk needs, if each needs them anew
    "gather_latency",  # ... of that, before bytes of dense parameters flow
    "shared",  # GPU seconds that reductions and gathers of one step take from kernels
    "shared_each",  # ... of one micro-batch
    "norm",  # seconds from reduced gradients to the norm
    "update",  # seconds from the norm to the end
)
CHUNK_QUANTITIES = (
    "gather",  # seconds of gathers that the first forward of a chunk needs on their lane
    "gather_forward",  # ... that every forward needs while it runs, from its beginning to that of its last unit
    "gather_backward",  # ... every backward
    "reduce_backward",  # seconds of reductions that it awaits, from the end of its first unit to that of the last
)
BYTES = (
    "resident",  # bytes that are there all the time
    "gathered",  # bytes of gathered parameters while the smallest unit of any chunk runs
)


@dataclass(frozen=True)
class StagePrices:
    """One row per quantity of QUANTITIES, one column per stage; of CHUNK_QUANTITIES, one column per content."""

    values: Floats
    chunks: Floats

    @staticmethod
    def of(setting: Setting, layout: Layout, gpus: Sequence[GPU], transfers: GridTransfers) -> StagePrices:
        """The least over the kinds of GPU."""
        distinct, which = layout.distinct_stages
        pricings = [pricing_on(gpu, setting, transfers) for gpu in gpus]
        costs = UnitCosts(setting, pricings[0])  # collectives do not depend on the GPU
        contents = [_Chunk.of(costs, layout.layers(content)) for content in range(len(layout.contents))]
        columns = []
        for stage in distinct:
            chunks = [contents[content] for content in stage]
            layers = [layer for content in stage for layer in layout.layers(content)]
            placed = [Placed(layer, setting.shard) for layer in layers]
            ends = [_ends(costs, pricing, placed, [chunk.whole for chunk in chunks]) for pricing in pricings]
            columns.append([*_lanes(costs, chunks), *np.min(ends, axis=0)])
        first = set(layout.first_chunk.tolist())
        found = [_chunk_lanes(costs, chunk, content in first) for content, chunk in enumerate(contents)]
        return StagePrices(np.array(columns).T[:, which], np.array(found).T)


@dataclass(frozen=True)
class _Chunk:
    """The units of a chunk, and what each costs: its gather forward, its last reduction and every other one."""

    units: list[Unit]
    whole: Unit
    gathers: list[Cost]
    last: list[Cost]
    every: list[Cost]

    @classmethod
    def of(cls, costs: UnitCosts, layers: Sequence[Layer]) -> Self:
        setting = costs.setting
        placed = [Placed(layer, setting.shard) for layer in layers]
        units, (whole,) = units_of(setting, placed), one_unit(placed)
        gathered = setting.shards_parameters or setting.gathers_ahead
        each = setting.reduces_each_micro_batch
        reduced = units if setting.overlaps_gradients or each else [whole]
        return cls(
            units,
            whole,
            [costs.gather(unit, "forward") for unit in units] if gathered else [NOTHING] * len(units),
            [costs.reduce(unit, True) for unit in reduced],
            [costs.reduce(unit, False) for unit in reduced] if each else [],
        )


def stage_bytes(setting: Setting, layout: Layout) -> Floats:
    """One row per quantity of BYTES, one column per stage."""
    distinct, which = layout.distinct_stages
    columns = []
    for stage in distinct:
        layers = [layer for content in stage for layer in layout.layers(content)]
        contents = (layout.layers(content) for content in (stage if setting.shards_parameters else ()))
        chunks = [
            units_of(setting, [Placed(layer, setting.shard) for layer in content]) for content in contents
        ]
        columns.append(_bytes(setting, layers, chunks))
    return np.array(columns).T[:, which]


def _lanes(costs: UnitCosts, chunks: Sequence[_Chunk]) -> list[float]:
    """What gathers and reductions take, all of QUANTITIES but the last two."""
    setting = costs.setting
    each = setting.reduces_each_micro_batch
    overlaps = setting.overlaps_gradients or each
    first_gathers = [seconds for seconds, _ in chunks[0].gathers]
    first_reduces = [seconds for seconds, _ in chunks[0].last]
    reduce_all, reduce_share = _summed(chunk.last for chunk in chunks)
    reduce_each, share_each = _summed(chunk.every for chunk in chunks)
    gather_each, gather_share = _gathers_per_micro_batch(costs, chunks)
    longest = sorted((seconds for chunk in chunks for seconds, _ in chunk.every), reverse=True)
    return [
        first_gathers[0] if first_gathers else 0.0,
        sum(first_gathers),
        gather_each,
        (first_reduces[0] if first_reduces else 0.0) if overlaps else reduce_all,
        sum(first_reduces) if overlaps else reduce_all,
        reduce_each,
        sum(longest[:WHOLE]),
        _on_one_link(costs, chunks) if setting.shards_parameters and each else 0.0,
        *_before_forward(costs, chunks),
        0.0 if each else reduce_share,
        share_each + gather_share,
    ]


def _chunk_lanes(costs: UnitCosts, chunk: _Chunk, is_first: bool) -> list[float]:
    """CHUNK_QUANTITIES of a chunk.

    The gather of a unit is issued when the unit may start that runs `prefetch` before it, and a backward of a sharded
    unit starts when all reductions are through but those of the WHOLE units before it; gathers follow one another, and
    so do reductions (`program.parameters`, `program.gradients`).
    """
    setting, count = costs.setting, len(chunk.units)
    gather = sum(seconds for seconds, _ in chunk.gathers)
    if setting.num_slices > 1:  # some of which may have nothing to run
        return [gather, 0.0, 0.0, 0.0]
    ahead = setting.plan.zero3.prefetch
    forward, backward = (
        gathered_each(setting, chunk.units, is_first) if setting.shards_parameters else ([], [])
    )
    again = [costs.gather(chunk.units[i], "backward")[0] for i in backward if count - 1 - i >= ahead]
    return [
        gather,
        sum(chunk.gathers[i][0] for i in forward if i >= ahead),
        sum(again),
        sum(seconds for seconds, _ in chunk.every[WHOLE:]),
    ]


def _on_one_link(costs: UnitCosts, chunks: Sequence[_Chunk]) -> float:
    """Of one micro-batch's gathers and reductions of dense parameters; zero where they fill different links."""
    setting, pricing = costs.setting, costs.pricing
    if setting.plan.zero3.model_dump(exclude={"prefetch", "reshard_after_forward"}, exclude_defaults=True):
        return 0.0  # over parts of the group
    if setting.plan.synchronisation.compression != Compression():
        return 0.0  # in another form
    units = [unit.dense for chunk in chunks for unit in chunk.units if unit.dense]
    gathers = [parameter_gather(setting, pricing, "dp_cp", count) for count in units]
    size, times = setting.wire_size, 2 if setting.plan.zero3.reshard_after_forward else 1
    reduces = [pricing.communicators.transfer("dp_cp", setting.reduction, count * size, 0) for count in units]
    sent = [(one, times) for one in gathers] + [(one, 1) for one in reduces]
    found = [(transfer, count) for transfer, count in sent if transfer is not None and transfer.work]
    if len({transfer.algorithm for transfer, _ in found}) != 1:
        return 0.0
    seconds = sum(count * transfer.work / transfer.rate for transfer, count in found)
    if setting.plan.pp == 1 and setting.plan.zero3.reshard_after_forward:
        seconds -= max((one.work / one.rate for one in gathers if one is not None and one.work), default=0.0)
    return max(0.0, seconds)


def _gathers_per_micro_batch(costs: UnitCosts, chunks: Sequence[_Chunk]) -> Cost:
    setting = costs.setting
    if not setting.shards_parameters:
        return NOTHING
    lanes = []
    for number, chunk in enumerate(chunks):
        forward, backward = gathered_each(setting, chunk.units, number == 0)
        lanes.append([chunk.gathers[position] for position in forward])
        lanes.append([costs.gather(chunk.units[position], "backward") for position in backward])
    return _summed(lanes)


def _before_forward(costs: UnitCosts, chunks: Sequence[_Chunk]) -> tuple[float, float]:
    """(seconds, latency) of the gathers of whichever chunk needs least; nothing where gathered parameters stay."""
    setting, pricing = costs.setting, costs.pricing
    if not setting.shards_parameters or not setting.plan.zero3.reshard_after_forward:
        return 0.0, 0.0
    seconds, latencies = [], []
    for number, chunk in enumerate(chunks):
        forward, _ = gathered_each(setting, chunk.units, number == 0)
        seconds.append(sum(chunk.gathers[position][0] for position in forward))
        units = [chunk.units[position].dense for position in forward]
        found = [parameter_gather(setting, pricing, "dp_cp", count) for count in units]
        latencies.append(sum(one.latency for one in found if one is not None and one.work))
    return min(seconds), min(latencies)


def _summed(lanes: Iterable[Sequence[Cost]]) -> Cost:
    pairs = [pair for lane in lanes for pair in lane]
    return sum(seconds for seconds, _ in pairs), sum(share for _, share in pairs)


def _ends(costs: UnitCosts, pricing: ClassPricing, placed: Sequence[Placed], whole: Sequence[Unit]) -> Cost:
    """(norm, update) seconds, as in `simulator.program.optimizer`."""
    setting = costs.setting
    owned = owned_parameters(setting, placed)
    if not owned:
        return NOTHING
    waits = setting.host_waits or bool(setting.software.optimizer.host_synchronisations)
    norm = _exposed(norm_chain(setting, pricing, owned), setting.host_waits)
    update = 0.0  # elsewhere, if state is off the GPU
    if setting.plan.offload.optimizer == "none":
        update = _exposed(update_chain(setting, pricing, [one.layer for one in placed], owned), waits)
    if setting.plan.zero in (1, 2) and not setting.gathers_ahead:
        update += sum(costs.gather(unit, "forward")[0] for unit in whole)
    return norm, update


def _exposed(chain: Chain, waits: bool) -> float:
    """Seconds of a chain; the host's lead too where nothing was launched ahead."""
    return chain.seconds + (chain.lead if waits else 0.0)


def _bytes(
    setting: Setting, layers: Sequence[Layer], chunks: Sequence[Sequence[Unit]]
) -> tuple[float, float]:
    """(resident, gathered)."""
    state = stage_state(layers, setting.workload, setting.shard, setting.grid.world)
    resident = state.total + setting.software.memory.context
    resident += gradient_copies(
        layers, setting.workload, setting.shard, setting.grid.world, setting.software.memory
    )
    if not setting.shards_parameters:
        return resident, 0.0
    sizes = [[_gathered(setting, unit) for unit in units] for units in chunks]
    return resident, min(min(counts, default=0.0) for counts in sizes) * setting.gathered_size


def _gathered(setting: Setting, unit: Unit) -> float:
    """Parameters of a unit that are brought together for backward."""
    found = sharding.gathers(setting, unit, "backward")
    return sum(count for axis, count in found if setting.grid.size(axis) > 1)
