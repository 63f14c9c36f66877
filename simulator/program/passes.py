"""What an action of the schedule runs: units of its chunk, a chain for each, and the memory they take and free."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from simulator.program.chains import Chain, joined
from simulator.program.contents import ChunkContent
from simulator.program.layer_chains import LayerChains
from simulator.program.pipeline import PipelineTraffic, Ways
from simulator.program.pricing import ClassPricing
from simulator.program.program import MemoryChange
from simulator.program.schedules import Action
from simulator.program.setting import Setting
from simulator.program.shard_copies import NOTHING, Copies
from simulator.program.side_by_side import Piece, backward_pieces, forward_pieces
from simulator.program.slicing import sliced
from simulator.program.track import chain_of
from simulator.program.units import Placed, Unit, content_of
from simulator.workloads.layers import Operation
from simulator.workloads.micro_batches import Pack
from simulator.workloads.operators import Collective

DIRECTIONS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


@dataclass(frozen=True, slots=True)
class Pass:
    """What all actions of one kind on one chunk have in common.

    `direction`: forward, backward, input gradient or weight gradient. `units` in the order in which they run.
    `gathered`: bytes of what arrives, where it was cut over tp for the way and is gathered first.
    """

    direction: str
    content: ChunkContent
    units: tuple[Unit, ...]
    arrival: Ways
    departure: Ways
    gathered: float
    needs_parameters: bool
    """Its units wait for parameters that are gathered for them, or were at the beginning of the step."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a unit allocates when the first task of a pass starts, and frees when the last one ends."""

    taken: tuple[MemoryChange, ...]
    freed: tuple[MemoryChange, ...]


@dataclass(slots=True)
class Passes:
    """The passes of one rank class, each found once."""

    setting: Setting
    pricing: ClassPricing
    stage: int
    pipeline: PipelineTraffic
    packs: Sequence[Pack | None]  # by micro-batch
    priced: dict[Hashable, Chain]  # in earlier steps, by content
    layers: LayerChains
    _passes: dict[tuple[str, int, Pack | None], Pass] = field(default_factory=dict)
    _chains: dict[tuple[int, str, bool, Copies], Chain] = field(default_factory=dict)  # by unit
    _pieces: dict[tuple[int, str], list[Piece]] = field(default_factory=dict)  # by unit
    _held: dict[Hashable, Held] = field(default_factory=dict)  # by unit, and by content
    _wholes: dict[int, tuple[Chain, Held]] = field(default_factory=dict)  # by pass

    def of(self, action: Action) -> Pass:
        pack = self.packs[action.micro_batch % len(self.packs)]
        key = (action.op, action.chunk, pack)
        if key not in self._passes:
            self._passes[key] = self._find_pass(*key)
        return self._passes[key]

    def _find_pass(self, op: str, chunk: int, pack: Pack | None) -> Pass:
        setting, way, gathered = self.setting, "F" if op == "F" else "B", 0.0
        content = setting.content_of(pack)[self.stage][chunk]
        arrival: Ways = ()
        departure: Ways = ()
        if op != "W":
            arrival = self.pipeline.arrival(way, chunk, pack)
            departure = self.pipeline.departure(way, chunk, pack)
        if arrival and setting.scatter > 1:
            before = content.virtual - 1 if op == "F" else content.virtual
            gathered = setting.boundary_bytes_of(pack)[before] * setting.scatter
        units = content.units if op == "F" else content.units[::-1]
        gathers = setting.shards_parameters or (setting.gathers_ahead and op == "F")
        needs_parameters = gathers and op != "W"  # which reads none
        return Pass(DIRECTIONS[op], content, units, arrival, departure, gathered, needs_parameters)

    # --- memory ------------------------------------------------------------------------------------------------------

    def held(self, unit: Unit, direction: str) -> Held:
        """What a unit keeps from forward to backward, and what lives only while it runs backward."""
        key = (id(unit), direction)
        if key not in self._held:
            alike = (content_of(unit), direction)
            if alike not in self._held:
                self._held[alike] = self._find_held(unit, direction)
            self._held[key] = self._held[alike]
        return self._held[key]

    def _find_held(self, unit: Unit, direction: str) -> Held:
        kept, working = ("activations", unit.activation_bytes), ("transient", unit.transient_bytes)
        if direction == "forward":
            return Held(self._changes([kept]), ())
        if direction == "weight gradient":
            return Held((), self._changes([("activations", -unit.postponed_bytes)]))
        freed = [("activations", -kept[1]), ("transient", -working[1])]
        if direction == "input gradient":
            freed.append(("activations", unit.postponed_bytes))
        return Held(self._changes([working]), self._changes(freed))

    def _changes(self, amounts: Iterable[tuple[str, float]]) -> tuple[MemoryChange, ...]:
        return tuple(MemoryChange(self.pricing.rank_class, kind, size) for kind, size in amounts if size)

    # --- chains ------------------------------------------------------------------------------------------------------

    def whole(self, one: Pass) -> tuple[Chain, Held]:
        """The chain of a pass whose units are one, and what that holds."""
        found = self._wholes.get(id(one))
        if found is None:
            unit = one.content.whole
            found = self._wholes[id(one)] = self.chain(one, unit, True), self.held(unit, one.direction)
        return found

    def chain(self, one: Pass, unit: Unit, is_first: bool, copies: Copies = NOTHING) -> Chain:
        """What a unit of the pass runs; `is_first`: of the pass, which gathers what arrives in parts."""
        key = (id(unit), one.direction, is_first, copies)
        if key not in self._chains:
            self._chains[key] = self._find_chain(one, unit, is_first, copies)
        return self._chains[key]

    def _find_chain(self, one: Pass, unit: Unit, is_first: bool, copies: Copies) -> Chain:
        """Equal layers have one chain, wherever they stand."""
        layers = unit.layers if one.direction == "forward" else unit.layers[::-1]
        gathered = one.gathered if is_first else 0.0
        key = (content_of(unit), one.direction, gathered, copies)
        if key not in self.priced:
            parts = [self._layer_chain(placed, one.direction) for placed in layers]
            if unit.num_slices > 1:  # backward works through them from the last
                place = unit.slice if one.direction == "forward" else unit.num_slices - 1 - unit.slice
                parts = [sliced(joined(parts), unit.num_slices)[place]]
            if gathered:
                parts.insert(0, self._boundary_chain(gathered))
            if copies != NOTHING:
                backward = one.direction != "forward"
                before, after = (
                    chain_of(found, self.pricing, "compute", backward)
                    for found in (copies.before(), copies.after())
                )
                parts = [before, *parts, after]
            self.priced[key] = joined(parts)
        return self.priced[key]

    def _layer_chain(self, placed: Placed, direction: str) -> Chain:
        key = ((id(placed.layer), id(placed.shard)), direction)
        if key not in self.priced:
            self.priced[key] = self.layers.of(placed, direction, self.pricing)
        return self.priced[key]

    def pieces(self, one: Pass) -> list[Piece]:
        """What of the pass runs beside what of another one."""
        key = (id(one.content.whole), one.direction)
        if key not in self._pieces:
            cut = forward_pieces if one.direction == "forward" else backward_pieces
            found = cut(one.content.whole.layers, self.pricing)
            if one.gathered:
                first = self._boundary_chain(one.gathered) + found[0].chain
                found = [replace(found[0], chain=first), *found[1:]]
            self._pieces[key] = found
        return self._pieces[key]

    def _boundary_chain(self, size: float) -> Chain:
        arrival = Operation("gather boundary", Collective("all_gather", "tp", size))
        return chain_of([arrival], self.pricing, "compute", False)
