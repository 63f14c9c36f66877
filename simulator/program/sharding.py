"""Which collectives bring a unit's parameters to its ranks and sum its gradients, under every way of sharing them out?

ZeRO 1 and 2 share over all ranks that hold the same parameters. ZeRO 3 does so within groups of `shard_group` ranks and
sums over the groups (HSDP; MiCS where that waits for the last micro-batch), for a fraction of each layer's parameters
(OSDP: the rest is replicated), and may gather for backward from a second copy that fewer ranks share (hpZ).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.costs.memory import kept_part
from simulator.program.setting import Setting
from simulator.program.units import Placed, Unit, layer_units


@dataclass(frozen=True, slots=True)
class Share:
    """`count` parameters that the rank at place `owner` of every group of `axis` updates."""

    axis: str
    owner: int
    count: float


Gather = tuple[str, float]
"""(axis, number of parameters that every rank of the axis ends up with)"""
Reduction = tuple[str, str, float]
"""(axis, operation, number of gradients)"""


def gathers(setting: Setting, unit: Unit, direction: str) -> list[Gather]:
    """What brings a unit's sharded parameters together; `direction`: forward, or any part of backward."""
    groups = setting.plan.zero3
    second = direction != "forward" and groups.secondary_group is not None and groups.reshard_after_forward
    dense, experts = _sharded(setting, unit)
    grouped = groups.shard_group is not None
    axis = "secondary" if second else "shard" if grouped else "dp_cp"
    found = ((axis, dense), ("eshard" if grouped else "edp", experts))
    return [(axis, count) for axis, count in found if count]


def reductions(setting: Setting, unit: Unit, is_last: bool, step: int = 0) -> list[list[Reduction]]:
    """What sums a unit's gradients: chains of collectives, each of which waits for the one before.

    `is_last`: of the micro-batches; gradients that stay whole on every rank are summed up locally until then. `step`:
    which it is, where the groups that average change from step to step.
    """
    synchronisation = setting.plan.synchronisation
    if synchronisation.dense == "servers":
        return []
    if synchronisation.averages_parameters:
        if synchronisation.scheme != "groups" or not is_last or not unit.parameters.total:
            return []
        return [[(f"mix{step % setting.cycle}", "all_reduce", float(unit.parameters.total))]]
    if not setting.shards_parameters:
        plain = ((axis, setting.reduction, count) for axis, count in _whole(unit))
        return [[one] for one in plain if one[2]]
    chains = []
    for (axis, total), sharded in zip(_whole(unit), _sharded(setting, unit), strict=True):
        chains.append(list(_grouped(setting, axis, sharded, is_last)))
        if is_last and total > sharded:
            chains.append([(axis, "all_reduce", total - sharded)])
    return [chain for chain in chains if chain]


def _grouped(setting: Setting, axis: str, count: float, is_last: bool) -> Iterator[Reduction]:
    """Sums inside the groups that share the parameters, and over the groups."""
    groups = setting.plan.zero3
    if not count:
        return
    if groups.shard_group is None:
        yield axis, *_scatter(setting, count)
        return
    prefix = "e" if axis == "edp" else ""
    yield f"{prefix}shard", "reduce_scatter", count
    if is_last or not groups.sum_copies_last:
        yield f"{prefix}replicate", "all_reduce", count / setting.grid.size(f"{prefix}shard")


def gather_of(setting: Setting, count: float) -> tuple[str, float]:
    """(operation, number) that brings `count` sharded parameters together.

    Unequal shards are padded to the longest, or broadcast one after the other.
    """
    if setting.gathers_by_broadcast or (setting.parts and setting.plan.zero3.unequal == "grouped"):
        return "broadcast_each", count
    return "all_gather", count * setting.longest_part


def _scatter(setting: Setting, count: float) -> tuple[str, float]:
    """(operation, number) that sums `count` gradients to their owners: a broadcast costs what a reduction does."""
    if setting.parts and setting.plan.zero3.unequal == "grouped":
        return "broadcast_each", count
    return "reduce_scatter", count * setting.longest_part


def owned_parameters(setting: Setting, layers: Sequence[Placed]) -> float:
    """Parameters of the layers that one rank updates, the mean where shards are unequal."""
    if setting.plan.synchronisation.dense == "servers":
        return 0.0
    if setting.plan.zero == 0:
        return float(sum(p.layer.parameters(p.shard).total for p in layers))
    groups, owned = setting.plan.zero3, 0.0
    sharded = setting.shards_parameters
    shard, expert_shard = (setting.grid.size(axis) for axis in ("shard", "eshard"))
    for placed in layers:
        count = placed.layer.parameters(placed.shard)
        fraction = groups.fraction_of(placed.layer.kind) if sharded else 1.0
        owned += (count.total - count.experts) * kept_part(fraction, shard)
        owned += count.experts * kept_part(fraction, expert_shard)
    return owned


def twin_bytes(setting: Setting, stage: int) -> float:
    """Bytes of a stage's gradients that it adds up with the stage that holds the same parts.

    Each has its own sums over data parallelism by then, shared out where the update is.
    """
    if setting.schedule.copies == 1:
        return 0.0
    layers = [placed for content in setting.content[stage] for placed in content.layers]
    return owned_parameters(setting, layers) * setting.reduction_size


def shares(setting: Setting, stage: int) -> list[Share]:
    """What of a stage's parameters each rank updates, with ZeRO-1 and 2, where whole layers are shared out.

    As PyTorch's ZeroRedundancyOptimizer does it: the largest to whoever has least.
    """
    counts: dict[str, list[float]] = {}
    for chunk in setting.content[stage]:
        for unit in layer_units(chunk.layers):
            for axis, count in gathers(setting, unit, "forward"):
                counts.setdefault(axis, []).append(count)
    found = []
    for axis, parts in counts.items():
        owned = [0.0] * setting.grid.size(axis)
        for count in sorted(parts, reverse=True):
            owned[owned.index(min(owned))] += count
        found += [Share(axis, owner, count) for owner, count in enumerate(owned) if count]
    return found


def kept_units(setting: Setting, units: Sequence[Unit], is_first: bool) -> frozenset[int]:
    """Positions of a chunk's units that stay gathered over the step; `is_first`: of its stage's chunks.

    Those whose gathers send most per byte that stays, as many as fit: short of the most that could be saved by less
    than one unit (a knapsack filled by density), and exactly that where units are equal.
    """
    left = setting.plan.zero3.unsharded_bytes / setting.num_chunks
    if not left:
        return frozenset()
    kept = set()
    for position in keeping_order(setting, units, is_first):
        size = gathered_bytes(setting, units[position])
        if size <= left:
            left -= size
            kept.add(position)
    return frozenset(kept)


def keeping_order(setting: Setting, units: Sequence[Unit], is_first: bool) -> list[int]:
    """Positions of the units that save anything by staying gathered, the most per byte first.

    The last one stays from forward to backward in any case, and comes last.
    """
    stays = len(units) - 1 if is_first and setting.plan.pp == 1 else len(units)
    found = []
    for position, unit in enumerate(units):
        needed = gathers(setting, unit, "forward")
        sent = sum(count * (1.0 - 1.0 / setting.grid.size(axis)) for axis, count in needed)
        if sent > 0.0:
            density = sent / sum(count for _, count in needed)
            found.append((position >= stays, -density, position))
    return [position for *_, position in sorted(found)]


def gathered_bytes(setting: Setting, unit: Unit) -> float:
    """Bytes of a unit's parameters that are shared out, gathered."""
    return sum(count for _, count in gathers(setting, unit, "forward")) * setting.gathered_size


def _whole(unit: Unit) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("dp_cp", unit.dense), ("edp", unit.experts)


def _sharded(setting: Setting, unit: Unit) -> tuple[float, float]:
    """(dense, experts) of the unit's parameters that are shared out."""
    if not setting.shards_parameters:
        return float(unit.dense), float(unit.experts)
    dense = experts = 0.0
    for placed in unit.layers:
        count = unit.parameters if len(unit.layers) == 1 else placed.layer.parameters(placed.shard)
        fraction = setting.plan.zero3.fraction_of(placed.layer.kind)
        dense += fraction * (count.total - count.experts)
        experts += fraction * count.experts
    return dense, experts
