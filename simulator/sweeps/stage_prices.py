"""What data parallelism, the optimizer and the model's state cost each stage at least: seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.memory import gradient_copies, stage_state
from simulator.hardware.gpu import GPU
from simulator.program import sharding
from simulator.program.chains import Chain, Transfer
from simulator.program.exchange import exchanges
from simulator.program.optimizer import norm_chain, parameter_gather, update_chain
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.program.sharding import kept_units, owned_parameters
from simulator.program.units import Placed, Unit, buckets, content_of, layer_units, one_unit
from simulator.sweeps.alone import GridTransfers
from simulator.sweeps.layer_prices import pricing_on
from simulator.sweeps.layouts import Layout
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
    "links_each",  # seconds for which gathers and reductions of a micro-batch together fill a link that both need
    "gather_forward",  # seconds of gathers that a forward of any chunk needs, if each needs them anew
    "gather_latency",  # ... of that, before bytes of dense parameters flow
    "shared",  # GPU seconds that reductions and gathers of one step take from kernels
    "shared_each",  # ... of one micro-batch
    "norm",  # seconds from reduced gradients to the norm
    "update",  # seconds from the norm to the end
)
BYTES = (
    "resident",  # bytes that are there all the time
    "gathered",  # bytes of gathered parameters while the smallest unit of any chunk runs
)


@dataclass(frozen=True)
class StagePrices:
    """One row per quantity of QUANTITIES, one column per stage."""

    values: Floats

    @staticmethod
    def of(setting: Setting, layout: Layout, gpus: Sequence[GPU], transfers: GridTransfers) -> StagePrices:
        """The least over the kinds of GPU."""
        units = [units_of(setting, layout.layers(content)) for content in range(len(layout.contents))]
        distinct, which = layout.distinct_stages
        pricings = [pricing_on(gpu, setting, transfers) for gpu in gpus]
        columns = []
        for stage in distinct:
            chunks = [units[content] for content in stage]
            layers = [layer for content in stage for layer in layout.layers(content)]
            placed = [Placed(layer, setting.shard) for layer in layers]
            whole = [unit for content in stage for unit in _whole(setting, layout.layers(content))]
            ends = [_ends(setting, pricing, placed, whole) for pricing in pricings]
            columns.append([*_lanes(setting, pricings[0], chunks, whole), *np.min(ends, axis=0)])
        return StagePrices(np.array(columns).T[:, which])


def stage_bytes(setting: Setting, layout: Layout) -> Floats:
    """One row per quantity of BYTES, one column per stage."""
    distinct, which = layout.distinct_stages
    columns = []
    for stage in distinct:
        layers = [layer for content in stage for layer in layout.layers(content)]
        chunks = (
            [units_of(setting, layout.layers(content)) for content in stage]
            if setting.shards_parameters
            else []
        )
        columns.append(_bytes(setting, layers, chunks))
    return np.array(columns).T[:, which]


def units_of(setting: Setting, layers: Sequence[Layer]) -> list[Unit]:
    """As in `Setting.content`."""
    placed = [Placed(layer, setting.shard) for layer in layers]
    if setting.shards_parameters or setting.offloads_activations:
        return layer_units(placed, setting.num_slices)
    if setting.overlaps_gradients or setting.reduces_each_micro_batch or setting.gathers_ahead:
        size = setting.software.bucket_size if setting.plan.bucket_size is None else setting.plan.bucket_size
        return buckets(placed, size, setting.reduction_size)
    return one_unit(placed)


def _whole(setting: Setting, layers: Sequence[Layer]) -> list[Unit]:
    """A chunk as one unit."""
    return one_unit([Placed(layer, setting.shard) for layer in layers])


def _lanes(
    setting: Setting, pricing: ClassPricing, chunks: Sequence[Sequence[Unit]], whole: Sequence[Unit]
) -> list[float]:
    """What gathers and reductions take, all of QUANTITIES but the last two."""
    each = setting.reduces_each_micro_batch
    overlaps = setting.overlaps_gradients or each
    gathers = [[NOTHING] * len(units) for units in chunks]
    if setting.shards_parameters or setting.gathers_ahead:
        gathers = [
            _by_content(units, lambda unit: _gather(setting, pricing, unit, "forward")) for units in chunks
        ]
    reduced = chunks if overlaps else [[unit] for unit in whole]
    reduces = [_by_content(units, lambda unit: _reduce(setting, pricing, unit, True)) for units in reduced]
    every = [
        _by_content(units, lambda unit: _reduce(setting, pricing, unit, False)) for units in reduced if each
    ]
    first_gathers, first_reduces = ([seconds for seconds, _ in lane[0]] for lane in (gathers, reduces))
    reduce_all, reduce_share = _summed(reduces)
    reduce_each, share_each = _summed(every)
    gather_each, gather_share = _gathers_per_micro_batch(setting, pricing, chunks, gathers)
    return [
        first_gathers[0] if first_gathers else 0.0,
        sum(first_gathers),
        gather_each,
        (first_reduces[0] if first_reduces else 0.0) if overlaps else reduce_all,
        sum(first_reduces) if overlaps else reduce_all,
        reduce_each,
        _on_one_link(setting, pricing, chunks) if setting.shards_parameters and each else 0.0,
        *_before_forward(setting, pricing, chunks, gathers),
        0.0 if each else reduce_share,
        share_each + gather_share,
    ]


def _on_one_link(setting: Setting, pricing: ClassPricing, chunks: Sequence[Sequence[Unit]]) -> float:
    """Of one micro-batch's gathers and reductions of dense parameters; zero where they fill different links."""
    if setting.plan.zero3.model_dump(exclude={"prefetch", "reshard_after_forward"}, exclude_defaults=True):
        return 0.0  # over parts of the group
    if setting.plan.synchronisation.compression != Compression():
        return 0.0  # in another form
    units = [unit.dense for chunk in chunks for unit in chunk if unit.dense]
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


Cost = tuple[float, float]
"""(seconds on its lane, GPU seconds taken from kernels)"""
NOTHING: Cost = (0.0, 0.0)


def _gathers_per_micro_batch(
    setting: Setting, pricing: ClassPricing, chunks: Sequence[Sequence[Unit]], gathers: list[list[Cost]]
) -> Cost:
    if not setting.shards_parameters:
        return NOTHING
    lanes = []
    for number, (units, costs) in enumerate(zip(chunks, gathers, strict=True)):
        forward, backward = gathered_each(setting, units, number == 0)
        lanes.append([costs[position] for position in forward])
        again = [units[position] for position in backward]
        lanes.append(_by_content(again, lambda unit: _gather(setting, pricing, unit, "backward")))
    return _summed(lanes)


def _before_forward(
    setting: Setting, pricing: ClassPricing, chunks: Sequence[Sequence[Unit]], gathers: list[list[Cost]]
) -> tuple[float, float]:
    """(seconds, latency) of the gathers of whichever chunk needs least; nothing where gathered parameters stay."""
    if not setting.shards_parameters or not setting.plan.zero3.reshard_after_forward:
        return 0.0, 0.0
    seconds, latencies = [], []
    for number, (units, costs) in enumerate(zip(chunks, gathers, strict=True)):
        forward, _ = gathered_each(setting, units, number == 0)
        seconds.append(sum(costs[position][0] for position in forward))
        found = [parameter_gather(setting, pricing, "dp_cp", units[position].dense) for position in forward]
        latencies.append(sum(one.latency for one in found if one is not None and one.work))
    return min(seconds), min(latencies)


def gathered_each(setting: Setting, units: Sequence[Unit], is_first: bool) -> tuple[list[int], list[int]]:
    """Which of a chunk's units (positions) are gathered in every micro-batch: forward, and again backward.

    Not those that are kept over the step; and only once where they stay from forward to backward, unless other
    micro-batches find them there still.
    """
    kept, plan = kept_units(setting, units, is_first), setting.plan
    open_units = [position for position in range(len(units)) if position not in kept]
    alternates = plan.pp == 1 and setting.plan.schedule_name != "gpipe"  # forward, backward, forward, ...
    stays = len(units) - (is_first and plan.pp == 1)  # the last is used again at once
    left = [position for position in open_units if position < stays]
    if not plan.zero3.reshard_after_forward:
        return open_units if alternates else [], []
    return open_units if alternates or plan.pp > 1 else left, left


def _by_content(units: Sequence[Unit], cost: Callable[[Unit], Cost]) -> list[Cost]:
    """The cost of each unit; units of the same layers cost the same."""
    known: dict[Hashable, Cost] = {}
    found = []
    for unit in units:
        key = content_of(unit)
        if key not in known:
            known[key] = cost(unit)
        found.append(known[key])
    return found


def _reduce(setting: Setting, pricing: ClassPricing, unit: Unit, is_last: bool) -> Cost:
    moves = [move for chain in exchanges(setting, unit, is_last) for move in chain]
    return _moved(pricing.communicators.transfer(one.axis, one.op, one.size, 0) for one in moves)


def _gather(setting: Setting, pricing: ClassPricing, unit: Unit, direction: str) -> Cost:
    found = sharding.gathers(setting, unit, direction)
    return _moved(parameter_gather(setting, pricing, axis, count) for axis, count in found)


def _moved(transfers: Iterable[Transfer | None]) -> Cost:
    """What the transfers of one unit take together."""
    sent = [transfer for transfer in transfers if transfer is not None]
    shares = [transfer.gpu_share * transfer.work / transfer.rate for transfer in sent if transfer.work]
    return sum(transfer.seconds for transfer in sent), sum(shares)


def _summed(lane: Sequence[Sequence[Cost]]) -> Cost:
    pairs = [pair for units in lane for pair in units]
    return sum(seconds for seconds, _ in pairs), sum(share for _, share in pairs)


def _ends(setting: Setting, pricing: ClassPricing, placed: Sequence[Placed], whole: Sequence[Unit]) -> Cost:
    """(norm, update) seconds, as in `simulator.program.optimizer`."""
    owned = owned_parameters(setting, placed)
    if not owned:
        return NOTHING
    waits = setting.host_waits or bool(setting.software.optimizer.host_synchronisations)
    norm = _exposed(norm_chain(setting, pricing, owned), setting.host_waits)
    update = 0.0  # elsewhere, if state is off the GPU
    if setting.plan.offload.optimizer == "none":
        update = _exposed(update_chain(setting, pricing, [one.layer for one in placed], owned), waits)
    if setting.plan.zero in (1, 2) and not setting.gathers_ahead:
        update += sum(_gather(setting, pricing, unit, "forward")[0] for unit in whole)
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
