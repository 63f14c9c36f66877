"""When do the shared-out parameters of a unit come together, and when are they dropped again?"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.program.contents import ChunkContent
from simulator.program.offload import HostTraffic
from simulator.program.optimizer import parameter_gather
from simulator.program.pricing import ClassPricing
from simulator.program.rank_builder import RankBuilder
from simulator.program.setting import Setting
from simulator.program.sharding import gathered_bytes, gathers, kept_units
from simulator.program.units import Unit


@dataclass(slots=True)
class ParameterTraffic:
    """The gathers of one rank class."""

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    host: HostTraffic
    stage: int
    count: int  # micro-batches per step
    gathered: dict[tuple[int, int], int] = field(default_factory=dict)  # (chunk, unit) -> gather still valid
    awaited: list[list[int]] = field(default_factory=list)  # by units computed: what each waited for
    _kept: dict[int, frozenset[int]] = field(
        default_factory=dict
    )  # by part of the model: units that stay gathered

    def gather_everything(self, deps: list[int]) -> None:
        """Parameters updated by the last step are gathered while the first forward runs."""
        for content in self.setting.content[self.stage]:
            for position, unit in enumerate(content.units):
                task = self._task(unit, "forward", deps, -1)
                if task is not None:
                    self.gathered[(content.chunk, position)] = task

    def gathered_chunk(self, content: ChunkContent) -> list[int]:
        """The gathers still valid of a chunk's units."""
        keys = [(content.chunk, position) for position in range(len(content.units))]
        return [self.gathered[key] for key in keys if key in self.gathered]

    def here(self, content: ChunkContent, position: int) -> bool:
        """Whether a unit's parameters are together already, or on their way."""
        return (content.chunk, position) in self.gathered

    def gather(
        self,
        content: ChunkContent,
        unit: Unit,
        position: int,
        direction: str,
        needs: list[int],
        micro_batch: int,
    ) -> list[int]:
        """Tasks that bring the parameters of a unit that `needs` tasks besides.

        The gather is issued when the unit starts that runs `prefetch` units ahead of it.
        """
        key = (content.chunk, position)
        if key in self.gathered:
            return [self.gathered[key]]
        if not self.setting.shards_parameters:
            return []
        ahead = self.setting.plan.zero3.prefetch
        allowed = needs if ahead == 0 else self.awaited[-ahead] if len(self.awaited) >= ahead else []
        task = self._task(unit, direction, allowed, micro_batch)
        if task is None:
            return []
        self.gathered[key] = task
        draft, rank_class, size = (
            self.setting.draft,
            self.pricing.rank_class,
            gathered_bytes(self.setting, unit),
        )
        padded = self.setting.longest_part - 1.0 if self.setting.plan.zero3.unequal == "padded" else 0.0
        buffers = size * (self.setting.software.memory.gather_copies + padded)
        draft.memory(task, rank_class, "gathered parameters", size + buffers)
        draft.memory(task, rank_class, "gathered parameters", -buffers, at_end=True)
        return [task]

    def _task(self, unit: Unit, direction: str, deps: list[int], micro_batch: int) -> int | None:
        last = None
        if self.setting.shards_parameters:
            self.rank.extra += self.setting.software.zero3_overhead
            deps = self.host.fetch_shard(unit, deps, micro_batch)
        for axis, count in gathers(self.setting, unit, direction):
            transfer = parameter_gather(self.setting, self.pricing, axis, count)
            task = self.rank.communicate(transfer, "dp", "gather parameters", "dp-gather", deps, micro_batch)
            last = task if task is not None else last
        return last

    def reshard(
        self,
        content: ChunkContent,
        position: int,
        direction: str,
        is_last: bool,
        after: int,
        micro_batch: int,
    ) -> None:
        """Drop a unit's gathered parameters, unless they are needed again at once, or kept over the step."""
        setting, key = self.setting, (content.chunk, position)
        keeps = direction == "forward" and (
            not setting.plan.zero3.reshard_after_forward or (is_last and setting.plan.pp == 1)
        )
        if position in self._kept_units(content):
            keeps = direction == "forward" or (micro_batch + 1) % self.count != 0
        if keeps or key not in self.gathered or after < 0:
            return
        del self.gathered[key]
        size = -gathered_bytes(setting, content.units[position])
        setting.draft.memory(after, self.pricing.rank_class, "gathered parameters", size, at_end=True)

    def _kept_units(self, content: ChunkContent) -> frozenset[int]:
        """Positions of the chunk's units that stay gathered over the step."""
        if content.virtual not in self._kept:
            self._kept[content.virtual] = kept_units(self.setting, content.units, content.chunk == 0)
        return self._kept[content.virtual]
