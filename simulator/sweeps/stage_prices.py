"""What data parallelism, the optimizer and the model's state cost each stage at least: seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.memory import stage_state
from simulator.hardware.gpu import GPU
from simulator.program.chains import Chain, Transfer
from simulator.program.optimizer import norm_chain, parameter_gather, update_chain
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.program.units import Placed, Unit, buckets, layer_units, one_unit
from simulator.sweeps.alone import GridTransfers
from simulator.sweeps.layer_prices import pricing_on
from simulator.sweeps.layouts import Layout
from simulator.workloads.layers import Layer

Floats = NDArray[np.float64]
Counts = tuple[int, int]
"""(dense, experts): parameters reduced over dp and cp, and over the ranks that hold the same experts."""

QUANTITIES = (
    "gather_before",  # seconds of gathers before the first unit can start
    "gather_chunk",  # ... before the last unit of the first chunk can
    "gather_each",  # seconds of gathers that every micro-batch takes on their lane
    "reduce_after",  # seconds of reductions after the last backward
    "reduce_chunk",  # ... after the beginning of the last backward
    "reduce_each",  # seconds of reductions that every micro-batch takes on their lane
    "links_each",  # seconds for which gathers and reductions of a micro-batch together fill a link that both need
    "shared",  # GPU seconds that reductions and gathers of one step take from kernels
    "shared_each",  # ... of one micro-batch
    "norm",  # seconds from reduced gradients to the norm
    "update",  # seconds from the norm to the end
    "resident",  # bytes that are there all the time
    "gathered",  # bytes of gathered parameters while the largest unit of any chunk runs
)


@dataclass(frozen=True)
class StagePrices:
    """One row per quantity of QUANTITIES, one column per stage."""

    values: Floats

    @staticmethod
    def of(setting: Setting, layout: Layout, gpus: Sequence[GPU], transfers: GridTransfers) -> StagePrices:
        """The least over the kinds of GPU."""
        units = [_units(setting, layout.layers(content)) for content in range(len(layout.contents))]
        distinct, which = layout.distinct_stages
        pricings = [pricing_on(gpu, setting, transfers) for gpu in gpus]
        columns = []
        for stage in distinct:
            chunks = [units[content] for content in stage]
            layers = [layer for content in stage for layer in layout.layers(content)]
            ends = [_ends(setting, pricing, layers, _whole(chunks)) for pricing in pricings]
            columns.append(
                [
                    *_lanes(setting, pricings[0], chunks),
                    *np.min(ends, axis=0),
                    *_bytes(setting, layers, chunks),
                ]
            )
        return StagePrices(np.array(columns).T[:, which])


def _units(setting: Setting, layers: Sequence[Layer]) -> list[Unit]:
    """As in `Setting.content`."""
    placed = [Placed(layer, setting.shard) for layer in layers]
    if setting.shards_parameters:
        return layer_units(placed)
    if setting.overlaps_gradients or setting.reduces_each_micro_batch or setting.gathers_ahead:
        size = setting.software.bucket_size if setting.plan.bucket_size is None else setting.plan.bucket_size
        return buckets(placed, size, setting.reduction_size)
    return one_unit(placed)


def _whole(chunks: Sequence[Sequence[Unit]]) -> list[Counts]:
    """Parameters of each chunk."""
    return [(sum(unit.dense for unit in units), sum(unit.experts for unit in units)) for units in chunks]


def _lanes(setting: Setting, pricing: ClassPricing, chunks: Sequence[Sequence[Unit]]) -> list[float]:
    """What gathers and reductions take, the first nine of QUANTITIES."""
    each = setting.reduces_each_micro_batch
    gathers = reduces = [[(0.0, 0.0)] * len(units) for units in chunks]
    if setting.shards_parameters or setting.gathers_ahead:
        gathers = [[_gather(setting, pricing, (u.dense, u.experts)) for u in units] for units in chunks]
    if setting.overlaps_gradients or each:
        reduces = [[_reduce(setting, pricing, (u.dense, u.experts)) for u in units] for units in chunks]
    else:
        reduces = [[_reduce(setting, pricing, counts)] for counts in _whole(chunks)]
    first_gathers, first_reduces = ([seconds for seconds, _ in lane[0]] for lane in (gathers, reduces))
    gather_all, gather_share = _summed(gathers)
    reduce_all, reduce_share = _summed(reduces)
    times = _gathers_per_micro_batch(setting)
    gather_each = times * gather_all
    if times == 2 and setting.plan.pp == 1:
        gather_each -= first_gathers[-1] if first_gathers else 0.0  # kept from forward for backward
    overlaps = setting.overlaps_gradients or each
    return [
        first_gathers[0] if first_gathers else 0.0,
        sum(first_gathers),
        gather_each,
        (first_reduces[0] if first_reduces else 0.0) if overlaps else reduce_all,
        sum(first_reduces) if overlaps else reduce_all,
        reduce_all if each else 0.0,
        _on_one_link(setting, pricing, chunks) if times and each else 0.0,
        0.0 if each else reduce_share,
        (reduce_share if each else 0.0) + gather_share * times,
    ]


def _on_one_link(setting: Setting, pricing: ClassPricing, chunks: Sequence[Sequence[Unit]]) -> float:
    """Of one micro-batch's gathers and reductions of dense parameters; zero where they fill different links."""
    units = [unit.dense for chunk in chunks for unit in chunk if unit.dense]
    gathers = [parameter_gather(setting, pricing, "dp_cp", count) for count in units]
    size = setting.reduction_size
    reduces = [pricing.communicators.transfer("dp_cp", setting.reduction, count * size, 0) for count in units]
    sent = [(one, _gathers_per_micro_batch(setting)) for one in gathers] + [(one, 1) for one in reduces]
    found = [(transfer, times) for transfer, times in sent if transfer is not None and transfer.work]
    if len({transfer.algorithm for transfer, _ in found}) != 1:
        return 0.0
    seconds = sum(times * transfer.work / transfer.rate for transfer, times in found)
    if setting.plan.pp == 1 and setting.plan.zero3.reshard_after_forward:
        seconds -= max((one.work / one.rate for one in gathers if one is not None and one.work), default=0.0)
    return max(0.0, seconds)


def _gathers_per_micro_batch(setting: Setting) -> int:
    if not setting.shards_parameters:
        return 0
    return 2 if setting.plan.zero3.reshard_after_forward else 1


def _reduce(setting: Setting, pricing: ClassPricing, counts: Counts) -> tuple[float, float]:
    def transfer(axis: str, count: int) -> Transfer | None:
        return pricing.communicators.transfer(axis, setting.reduction, count * setting.reduction_size, 0)

    return _moved(transfer, counts)


def _gather(setting: Setting, pricing: ClassPricing, counts: Counts) -> tuple[float, float]:
    return _moved(lambda axis, count: parameter_gather(setting, pricing, axis, count), counts)


def _moved(move: Callable[[str, int], Transfer | None], counts: Counts) -> tuple[float, float]:
    """(seconds, GPU seconds taken from kernels) of the transfers of one unit."""
    found = [move(axis, count) for axis, count in zip(("dp_cp", "edp"), counts, strict=True) if count]
    sent = [transfer for transfer in found if transfer is not None]
    shares = [transfer.gpu_share * transfer.work / transfer.rate for transfer in sent if transfer.work]
    return sum(transfer.seconds for transfer in sent), sum(shares)


def _summed(lane: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    pairs = [pair for units in lane for pair in units]
    return sum(seconds for seconds, _ in pairs), sum(share for _, share in pairs)


def _ends(
    setting: Setting, pricing: ClassPricing, layers: Sequence[Layer], chunks: Sequence[Counts]
) -> tuple[float, float]:
    """(norm, update) seconds, as in `simulator.program.optimizer`."""
    dense, experts = (sum(column) for column in zip(*chunks, strict=True))
    owned = float(dense + experts)
    if setting.plan.zero:
        owned = dense / setting.grid.size("dp_cp") + experts / setting.grid.size("edp")
    if not owned:
        return 0.0, 0.0
    waits = setting.host_waits or bool(setting.software.optimizer.host_synchronisations)
    norm = _exposed(norm_chain(setting, pricing, owned), setting.host_waits)
    update = _exposed(update_chain(setting, pricing, layers, owned), waits)
    if setting.plan.zero in (1, 2) and not setting.gathers_ahead:
        update += sum(_gather(setting, pricing, counts)[0] for counts in chunks)
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
    if not setting.shards_parameters or setting.grid.size("dp_cp") == 1:
        return resident, 0.0
    largest = [max((unit.parameters.total for unit in units), default=0) for units in chunks]
    return resident, min(largest) * setting.parameter_size
