"""What does each group of GPUs run in each micro-batch, and how does one of them see a layer then?

A group shares documents between its GPUs (context parallelism). Groups of a step whose documents differ run unequal
micro-batches; one without documents runs as few padding tokens as it can, because collectives need it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm
from typing import TYPE_CHECKING

from simulator.workloads.packing import Row, attended, counted
from simulator.workloads.shard import Shard

if TYPE_CHECKING:
    from simulator.workloads.data import Data
    from simulator.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Pack:
    """The rows of one group of `degree` GPUs in one micro-batch: lengths that attention tells apart, by row."""

    degree: int
    rows: tuple[Row, ...]

    @property
    def tokens(self) -> int:
        """Without padding."""
        return sum(map(sum, self.rows))


MicroBatch = tuple[Pack, ...]
"""The packs of the groups, in the order of ranks along dp and cp."""


def pack_at(micro_batch: MicroBatch, slot: int) -> Pack:
    """The pack of the GPU at that place along cp, then dp."""
    for pack in micro_batch:
        if slot < pack.degree:
            return pack
        slot -= pack.degree
    raise IndexError(slot)


def by_row(workload: Workload, num_gpus: int) -> tuple[MicroBatch, ...]:
    """The rows of a step dealt to the replicas in turn, `micro_batch` at a time."""
    plan, data = workload.plan, workload.data
    mask = "document" if data is None else data.mask
    rows = [attended(row, mask) for row in workload.rows]
    size, replicas = plan.micro_batch, plan.data_parallel(num_gpus)
    count = replicas * workload.num_micro_batches(num_gpus)
    packs = [Pack(plan.cp, tuple(rows[i * size : (i + 1) * size])) for i in range(count)]
    return tuple(tuple(packs[i : i + replicas]) for i in range(0, count, replicas))


def packed(shard: Shard, pack: Pack, data: Data, sequence_length: int) -> Shard:
    """How a GPU of the group sees a layer: tokens with their padding, and what attention tells apart.

    A ring cuts every document for itself, so that each is padded to as many pieces; an exchange of heads needs only
    the tokens of all together to divide over the group.
    """
    axis = shard.context_axis if pack.degree == shard.cp else f"{shard.context_axis}@{pack.degree}"
    shard = replace(shard, cp=pack.degree, context_axis=axis)
    cut = _pieces(shard)
    unit = lcm(cut, shard.cp * (shard.tp if shard.sequence_parallel else 1))
    rounded = [[_up(length, cut) for length in row] for row in pack.rows]
    lengths = [sum(row) for row in rounded] or [0]
    if data.padding == "none":
        count, length = 1, _up(max(1, sum(lengths)), unit)
    else:
        least = sequence_length if data.padding == "full" else 1
        count, length = len(lengths), _up(max(least, *lengths), unit)
    apart = shard.attention != "unfused" and (data.mask == "document" or data.padding == "none")
    documents = [length for row in rounded for length in row]
    return replace(
        shard,
        micro_batch=count,
        sequence_length=length,
        documents=counted(documents) if apart else (),
        unpadded=counted(length for row in pack.rows for length in row),
        filled=pack.tokens / (count * length),
    )


def _pieces(shard: Shard) -> int:
    """Into how many parts each document is cut: those of the ring, two for each of its ranks in zigzag."""
    ring = shard.cp // shard.ulysses
    return 1 if ring == 1 else 2 * ring if shard.context_layout == "zigzag" else ring


def _up(tokens: int, unit: int) -> int:
    return -(-tokens // unit) * unit
