"""What does a layer come to on each rank class? Where all its times are equal, one pricing serves many classes.

Most stages of a pipeline run the same layers on the same GPUs: their chains differ in the resources they draw on, and
in nothing else. Such a chain is priced once and told again for each further class.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from simulator.program.chains import Chain, Latency, Transfer, transfer_phases
from simulator.program.pricing import ClassPricing
from simulator.program.program import Draws
from simulator.program.track import chain_of, draws_beside
from simulator.program.units import Placed
from simulator.workloads.layers import Operation
from simulator.workloads.operators import Collective

Part = tuple[Sequence[Operation], str, bool]
"""Operations, what the time of their kernels is reported as, and whether a backward launches them."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a layer does in one direction, whoever does it; `collectives`: each of them once."""

    parts: tuple[Part, ...]
    collectives: tuple[Collective, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """The chain of a layer as one class runs it; `transfers`: what its collectives cost there."""

    chain: Chain
    gpu: int
    transfers: tuple[Transfer, ...]


@dataclass(slots=True)
class LayerChains:
    """The chains of layers on all rank classes of a step."""

    _work: dict[Hashable, Work] = field(default_factory=dict)
    _told: dict[Hashable, Told] = field(default_factory=dict)

    def of(self, placed: Placed, direction: str, pricing: ClassPricing) -> Chain:
        """What a layer comes to (`direction`: forward, backward, input gradient or weight gradient) on one class."""
        layer = (id(placed.layer), id(placed.shard), direction)
        if layer not in self._work:
            self._work[layer] = _work(placed, direction)
        work = self._work[layer]
        costs = [pricing.transfer(collective) for collective in work.collectives]
        transfers = tuple([cost for cost in costs if cost is not None])
        key = (layer, pricing.pace, *[None if cost is None else cost.times for cost in costs])
        found = self._told.get(key)
        chain = None if found is None else told_again(found, pricing.gpu_resource, transfers)
        if chain is None:
            chain, *others = [chain_of(part, pricing, kind, backward) for part, kind, backward in work.parts]
            for other in others:
                chain += other
            self._told[key] = Told(chain, pricing.gpu_resource, transfers)
        return chain


def _work(placed: Placed, direction: str) -> Work:
    layer, shard = placed.layer, placed.shard
    parts: tuple[Part, ...]
    if direction == "forward":
        parts = ((layer.forward(shard), "compute", False),)
    elif direction == "weight gradient":
        parts = ((layer.weight_gradient(shard), "compute", True),)
    else:
        own = layer.input_gradient(shard) if direction == "input gradient" else layer.backward(shard)
        parts = ((layer.recompute(shard), "recompute", False), (own, "compute", True))
    every = [operation.what for operations, _, _ in parts for operation in operations]
    return Work(parts, tuple(dict.fromkeys([what for what in every if isinstance(what, Collective)])))


def told_again(told: Told, gpu: int, transfers: Sequence[Transfer]) -> Chain | None:
    """The chain as another class runs it, whose collectives take as long; None where draws do not tell them apart."""
    drawn: dict[Draws, Draws] = {(): (), ((told.gpu, 1.0),): ((gpu, 1.0),)}
    instead: dict[int, Transfer] = {}
    for one, other in zip(told.transfers, transfers, strict=True):
        instead[id(one)] = other
        for before, after in zip(_ways(one, told.gpu), _ways(other, gpu), strict=True):
            if drawn.setdefault(before, after) != after:
                return None
    phases = []
    for phase in told.chain.phases:
        due = tuple([(_swapped(what, instead), part) for what, part in phase.due_to])
        phases.append(phase._replace(draws=drawn[phase.draws], due_to=due))
    return replace(told.chain, phases=tuple(phases))


def _ways(transfer: Transfer, gpu: int) -> tuple[Draws, Draws]:
    """What a phase draws that carries the transfer alone, and one that carries it beside a kernel."""
    (alone,) = transfer_phases(transfer, "", "", (gpu,))
    return alone.draws, draws_beside(transfer, gpu)


def _swapped(what: Hashable, instead: dict[int, Transfer]) -> Hashable:
    if isinstance(what, Latency):
        return Latency(instead[id(what.transfer)])
    return instead[id(what)] if isinstance(what, Transfer) else what
