"""Which launches can a GPU be waiting for, while its host waits for nobody?

Such a host launches one chain after the other from the start of the step on, and is soon far ahead. Where the kernels
and latencies before a chain take longer on their own than all launches up to it, nobody can be waiting for its launch,
whatever the network does. Such launches are part of the next one that somebody may be waiting for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from simulator.program.chains import Chain, idle_phase
from simulator.program.program import Phase


@dataclass(slots=True)
class FreeHost:
    """A host since the step began. All times are in seconds since then, for as long as it has waited for nobody.

    `launched`: when it has launched everything so far; infinite once it has waited, or if it counts as if it had.
    `computed`: its GPU cannot have
    done so before. `pending`: seconds of launches that are in no task yet. `task`: the last one it ran.
    """

    gpu: int
    launched: float = 0.0
    computed: float = 0.0
    pending: float = 0.0
    task: int | None = None
    _least: dict[Chain, float] = field(default_factory=dict)

    def waits_for(self, tasks: list[int]) -> bool:
        """Whether it is free no longer, once it has waited for `tasks`: any but its own."""
        if any(task != self.task for task in tasks):
            self.launched = inf
        return self.launched == inf

    def launch(self, seconds: float) -> bool:
        """It launches for so long. Whether its GPU may have to wait for that."""
        self.launched += seconds
        self.pending += seconds
        if self.launched <= self.computed:
            return False
        self.computed = self.launched
        return True

    def compute(self, chain: Chain) -> None:
        """Its GPU runs a chain, after what was launched before it."""
        if self.launched < inf:
            if chain not in self._least:
                self._least[chain] = least_seconds(chain, self.gpu)
            self.computed += self._least[chain]

    def take(self) -> float:
        """Seconds of the launches that were in no task: now they are."""
        pending, self.pending = self.pending, 0.0
        return pending


def least_seconds(chain: Chain, gpu: int) -> float:
    """What the chain takes on its GPU if no link ever limits it."""
    seconds = 0.0
    for phase in chain.phases:
        seconds += phase.latency
        for resource, amount in phase.draws:
            if resource == gpu:
                seconds += phase.work * amount
    return seconds


@lru_cache(maxsize=65536)
def launches(seconds: float) -> tuple[Phase, ...]:
    """What a host's lane runs meanwhile; equal ones are one object."""
    return (idle_phase(seconds),)
