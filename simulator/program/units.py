"""Which layers have their gradients reduced, or their parameters gathered, in one collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from simulator.costs.memory import largest_working
from simulator.workloads.layers import Layer, Parameters, Shard


@dataclass(frozen=True, slots=True)
class Placed:
    """A layer as the GPUs of one stage see it."""

    layer: Layer
    shard: Shard


@dataclass(frozen=True)
class Unit:
    """Consecutive layers of a chunk, in forward order, that share a collective; or a slice of one layer."""

    layers: tuple[Placed, ...]
    parameters: Parameters
    slice: int = 0
    num_slices: int = 1  # of the one layer, of which the unit is this slice

    @property
    def dense(self) -> int:
        """Parameters reduced over all data-parallel (and context-parallel) ranks."""
        return self.parameters.total - self.parameters.experts

    @property
    def experts(self) -> int:
        """Parameters reduced over the ranks that hold the same experts."""
        return self.parameters.experts

    @cached_property
    def activation_bytes(self) -> float:
        """Kept from forward to backward, per micro-batch."""
        return sum(p.layer.activation_bytes(p.shard) for p in self.layers) / self.num_slices

    @cached_property
    def postponed_bytes(self) -> float:
        """Kept from the input gradient to the weight gradient where they run apart, per micro-batch."""
        return sum(p.layer.postponed_bytes(p.shard) for p in self.layers) / self.num_slices

    @cached_property
    def transient_bytes(self) -> float:
        """Peak of what lives only while a layer runs backward, less what layers behind it have freed by then."""
        return largest_working(
            [(p.layer.activation_bytes(p.shard), p.layer.transient_bytes(p.shard)) for p in self.layers]
        )


def content_of(unit: Unit) -> tuple[tuple[tuple[int, int], ...], int, int]:
    """Equal for units of the same work: which layers, and which slice of them."""
    return identity(unit.layers), unit.slice, unit.num_slices


def identity(layers: Sequence[Placed]) -> tuple[tuple[int, int], ...]:
    """Equal for the same layers in the same order, seen alike; a setting keeps one object for each."""
    return tuple([(id(placed.layer), id(placed.shard)) for placed in layers])


def one_unit(layers: Sequence[Placed]) -> list[Unit]:
    """Everything at once: what software without overlap does."""
    return [_unit(layers)]


def layer_units(layers: Sequence[Placed], num_slices: int = 1) -> list[Unit]:
    """Every layer on its own, as fully sharded data parallelism wraps them, or cut into slices."""
    return [unit for placed in layers for unit in _slices(_unit([placed]), num_slices)]


def _slices(unit: Unit, count: int) -> list[Unit]:
    if count == 1:
        return [unit]
    return [Unit(unit.layers, _slice(unit.parameters, one, count), one, count) for one in range(count)]


def _slice(whole: Parameters, index: int, count: int) -> Parameters:
    """The first slices take one parameter more where they do not divide."""
    numbers = {name: getattr(whole, name) for name in Parameters.__slots__}
    return Parameters(**{name: (n + count - 1 - index) // count for name, n in numbers.items()})


def buckets(layers: Sequence[Placed], bucket_size: float, element_size: float) -> list[Unit]:
    """Layers collected from the last one backwards until their gradients fill a bucket; in forward order."""
    found: list[Unit] = []
    pending: list[Placed] = []
    for placed in reversed(layers):
        pending.insert(0, placed)
        unit = _unit(pending)
        if unit.parameters.total * element_size >= bucket_size:
            found.insert(0, unit)
            pending = []
    if pending:
        found.insert(0, _unit(pending))
    return found


def _unit(layers: Sequence[Placed]) -> Unit:
    return Unit(tuple(layers), sum((p.layer.parameters(p.shard) for p in layers), Parameters()))
