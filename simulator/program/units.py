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
    """Consecutive layers of a chunk, in forward order, that share a collective."""

    layers: tuple[Placed, ...]
    parameters: Parameters

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
        return sum(p.layer.activation_bytes(p.shard) for p in self.layers)

    @cached_property
    def postponed_bytes(self) -> float:
        """Kept from the input gradient to the weight gradient where they run apart, per micro-batch."""
        return sum(p.layer.postponed_bytes(p.shard) for p in self.layers)

    @cached_property
    def transient_bytes(self) -> float:
        """Peak of what lives only while a layer runs backward, less what layers behind it have freed by then."""
        return largest_working(
            [(p.layer.activation_bytes(p.shard), p.layer.transient_bytes(p.shard)) for p in self.layers]
        )


def identity(layers: Sequence[Placed]) -> tuple[tuple[int, int], ...]:
    """Equal for the same layers in the same order, seen alike; a setting keeps one object for each."""
    return tuple([(id(placed.layer), id(placed.shard)) for placed in layers])


def one_unit(layers: Sequence[Placed]) -> list[Unit]:
    """Everything at once: what software without overlap does."""
    return [_unit(layers)]


def layer_units(layers: Sequence[Placed]) -> list[Unit]:
    """Every layer on its own, as fully sharded data parallelism wraps them."""
    return [_unit([placed]) for placed in layers]


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
