"""When are the gradients of a unit summed, and with whom?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.program.exchange import Exchange, codec_phase, exchanges
from simulator.program.offload import HostTraffic
from simulator.program.pipeline import exchange_ends
from simulator.program.pricing import ClassPricing
from simulator.program.rank_builder import RankBuilder
from simulator.program.servers import ServerTraffic
from simulator.program.setting import Setting
from simulator.program.sharding import gathers, twin_bytes
from simulator.program.units import Unit
from simulator.workloads.operators import DTYPE_BYTES, Collective

WHOLE = 2
"""Units whose gradients may be whole at a time: the next waits until one of them is summed (FSDP; DeepSpeed's two
buffers)."""


@dataclass(slots=True)
class GradientTraffic:
    """The sums of one rank class."""

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    host: HostTraffic
    servers: ServerTraffic
    stage: int
    count: int  # micro-batches per step
    reductions: list[int] = field(default_factory=list)  # since the last update
    _summed: list[int] = field(default_factory=list)  # what ended the reductions of sharded units

    def room(self) -> list[int]:
        """What the next sharded unit waits for before its gradients may be whole."""
        return self._summed[-WHOLE:][:-1]

    def reduce(
        self, unit: Unit, deps: Iterable[int], micro_batch: int, is_last: bool, step: int
    ) -> tuple[list[int], list[int]]:
        """(tasks of its collectives, those of them that end it); `is_last`: of the micro-batches of a step."""
        setting = self.setting
        tasks: list[int] = []
        ends: list[int] = []
        if setting.host_gathers:
            prepared = self.rank.host_work("prepare reduction", setting.software.zero3_overhead, [*deps])
            deps = [] if prepared is None else [prepared]
        for chain in exchanges(setting, unit, is_last, step):
            needs = list(deps)
            for exchange in chain:
                done = self._exchange(exchange, needs, micro_batch)
                needs = done or needs
                tasks += done
            ends += needs
        self.reductions += tasks
        if is_last:
            self.reductions += self.servers.sum_dense(unit, list(deps), micro_batch)
            self.reductions += self.servers.sum_rows(unit, list(deps), micro_batch, self.count)
            self.host.evict_gradients(unit, ends, micro_batch)
        return tasks, ends

    def _exchange(self, exchange: Exchange, deps: list[int], micro_batch: int) -> list[int]:
        """Encode, reduce, decode; the last of them, or nothing where nothing moves."""
        setting, pricing = self.setting, self.pricing
        transfer = pricing.communicators.transfer(
            exchange.axis, exchange.op, exchange.size, pricing.rank_class
        )
        if transfer is None:
            return []
        needs = self._code("encode", exchange.encoded, deps, micro_batch)
        averages = setting.plan.synchronisation.averages_parameters
        label = "average parameters" if averages else "reduce gradients"
        task = self.rank.communicate(transfer, "dp", label, "dp", needs, micro_batch)
        return [] if task is None else self._code("decode", exchange.decoded, [task], micro_batch)

    def _code(self, label: str, count: float, deps: list[int], micro_batch: int) -> list[int]:
        phase = codec_phase(self.setting, self.pricing, label, count) if count else None
        if phase is None:
            return deps
        return [self.setting.draft.add(self.pricing.rank_class, (label,), (phase,), deps, micro_batch)]

    def hold(self, unit: Unit, first: int, last: int, ends: list[int]) -> None:
        """Whole gradients of a sharded unit that ran from task `first` to `last` are there until they are summed.

        As backward makes them, then in the type that is summed.
        """
        setting, rank_class = self.setting, self.pricing.rank_class
        summed = ends[-1] if ends else last
        self._summed.append(summed)
        count = sum(count for _, count in gathers(setting, unit, "forward"))
        size = count * DTYPE_BYTES[setting.workload.activation_dtype]
        wider = count * setting.reduction_size if setting.reduction_size * count != size else 0.0
        setting.draft.memory(first, rank_class, "whole gradients", size)
        setting.draft.memory(summed, rank_class, "whole gradients", wider)
        setting.draft.memory(summed, rank_class, "whole gradients", -size - wider, at_end=True)

    def reduce_copies(self, deps: list[int]) -> None:
        """Stages that hold the same parts of the model, or the shared embedding, add up their gradients.

        `deps`: what they wait for where nothing was reduced before.
        """
        self._reduce_twins(deps)
        self._reduce_tied(deps)

    def _reduce_twins(self, deps: list[int]) -> None:
        size = twin_bytes(self.setting, self.stage)
        if not size:
            return
        transfer = self.pricing.transfer(Collective("all_reduce", "twins", size))
        task = self.rank.communicate(transfer, "dp", "reduce copies", "dp", self.reductions or deps)
        if task is not None:
            self.reductions.append(task)

    def _reduce_tied(self, deps: list[int]) -> None:
        """First and last stage add up their gradients of the shared embedding."""
        setting = self.setting
        if not setting.tied_bytes or self.stage not in (0, setting.plan.pp - 1):
            return
        # Without a flush nobody waits: the first stage is p micro-batches behind, the sum enters a later update.
        waits = setting.schedule.flushes
        lane = "dp" if waits else "tied"
        needs = self.reductions[-1:] or deps
        if setting.ends_differ:
            summed = exchange_ends(setting, self.pricing, self.stage, lane, needs)
        else:
            transfer = self.pricing.transfer(Collective("all_reduce", "tied", setting.tied_bytes))
            task = self.rank.communicate(transfer, "pp", "reduce tied embedding", lane, needs)
            summed = [] if task is None else [task]
        if waits:
            self.reductions += summed
