"""What do the gathers and sums of one unit cost, for data parallelism?"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from simulator.program import sharding
from simulator.program.chains import Transfer
from simulator.program.exchange import exchanges
from simulator.program.optimizer import parameter_gather
from simulator.program.pricing import ClassPricing
from simulator.program.setting import Setting
from simulator.program.sharding import kept_units
from simulator.program.units import Unit, content_of

Cost = tuple[float, float]
"""(seconds on its lane, GPU seconds taken from kernels)"""
NOTHING: Cost = (0.0, 0.0)


@dataclass
class UnitCosts:
    """Costs of units under one setting; units of the same layers cost the same."""

    setting: Setting
    pricing: ClassPricing
    _known: dict[Hashable, Cost] = field(default_factory=dict)

    def gather(self, unit: Unit, direction: str) -> Cost:
        """Of the unit's sharded parameters; `direction` as in `sharding.gathers`."""
        key = (direction, content_of(unit))
        if key not in self._known:
            found = sharding.gathers(self.setting, unit, direction)
            self._known[key] = _moved(
                parameter_gather(self.setting, self.pricing, axis, count) for axis, count in found
            )
        return self._known[key]

    def reduce(self, unit: Unit, is_last: bool) -> Cost:
        """Of the unit's gradients; `is_last`: of the micro-batches. As if several threads shared them evenly."""
        key = (is_last, content_of(unit))
        if key not in self._known:
            moves = [move for chain in exchanges(self.setting, unit, is_last) for move in chain]
            transfer = self.pricing.communicators.transfer
            seconds, share = _moved(transfer(one.axis, one.op, one.size, 0) for one in moves)
            self._known[key] = seconds / self.setting.threads, share
        return self._known[key]


def _moved(transfers: Iterable[Transfer | None]) -> Cost:
    """What the transfers of one unit take together."""
    sent = [transfer for transfer in transfers if transfer is not None]
    shares = [transfer.gpu_share * transfer.work / transfer.rate for transfer in sent if transfer.work]
    return sum(transfer.seconds for transfer in sent), sum(shares)


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
