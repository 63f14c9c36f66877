"""How do the owners of updated parameters hand them out by broadcast, message by message?

Gloo's broadcasts are trees of whole messages, and every rank works on its own: who has handed on its part of one
broadcast takes up the next, on whichever of the host's threads is free, while others still wait for the first. So a
broadcast is no single task: a message is a task on the receiver's thread, and a sender's thread is taken until its
messages are through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from simulator.costs.collectives.gloo_broadcast import children, parent
from simulator.program.chains import Transfer, transfer_phases

if TYPE_CHECKING:
    from simulator.program.pricing import ClassPricing
    from simulator.program.rank_builder import RankBuilder
    from simulator.program.setting import Setting
    from simulator.program.sharding import Share


def messages(share: Share, num_ranks: int) -> Iterator[str]:
    """The axes of two ranks each (`pair AXIS SOURCE>DESTINATION`) between which a share travels."""
    for place in range(num_ranks):
        for child in children(place, num_ranks):
            yield _pair(share, place, child, num_ranks)


def hand_out(
    setting: Setting, pricing: ClassPricing, rank: RankBuilder, shares: Sequence[Share], deps: Sequence[int]
) -> list[int]:
    """A rank class's part in the broadcasts of `shares`, in order; returns the tasks after which it is done."""
    ends, number = [], rank.counters.get("handed out", 0)
    rank.counters["handed out"] = number + 1
    for axis in dict.fromkeys(share.axis for share in shares):
        n, own = setting.grid.size(axis), tuple(share for share in shares if share.axis == axis)
        if n == 1:
            continue
        place = pricing.communicators.place(axis, rank.rank_class)
        # Two ranks have one connection, on which one broadcast's requests would queue behind the other's data.
        threads = threads_of(own, n, 1 if n == 2 else setting.threads)
        for share, thread in zip(own, threads[place], strict=True):
            part = _Part(setting, pricing, rank, share, number, (place - share.owner) % n, n)
            ends.append(part.build(f"dp {thread}", deps))
    return ends


@lru_cache(maxsize=64)
def threads_of(shares: tuple[Share, ...], num_ranks: int, num_threads: int) -> list[list[int]]:
    """By place and share, which of its threads a rank uses: the one that would be free first if no links were shared.

    Every rank takes up the broadcasts in order.
    """
    free = [[0.0] * num_threads for _ in range(num_ranks)]
    taken: list[list[int]] = [[] for _ in range(num_ranks)]
    for share in shares:
        through = [0.0] * num_ranks  # by place in the tree: when the rank has handed the message on
        for here in range(num_ranks):
            place = (here + share.owner) % num_ranks
            thread = free[place].index(min(free[place]))
            arrived = max(free[place][thread], through[parent(here)] if here else 0.0)
            through[here] = arrived + share.count * len(children(here, num_ranks))
            free[place][thread] = through[here]
            taken[place].append(thread)
    return taken


@dataclass(frozen=True)
class _Part:
    """One rank class's part in one broadcast of the `number`-th handing out.

    `here` is its place in the tree, in which the owner is 0.
    """

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    share: Share
    number: int
    here: int
    num_ranks: int

    def build(self, lane: str, deps: Sequence[int]) -> int:
        draft, rank_class = self.setting.draft, self.rank.rank_class
        below = children(self.here, self.num_ranks)
        if self.here:
            begun = self._message(parent(self.here), self.here, (lane,), deps)
        else:
            begun = draft.add(rank_class, (lane,), (), deps)
        sent = [self._message(self.here, child, (), [begun]) for child in below]
        return draft.add(rank_class, (lane,), (), sent) if sent else begun

    def _message(self, source: int, destination: int, lanes: tuple[str, ...], deps: Sequence[int]) -> int:
        """The task of a message, which both ends add to: the receiver its thread, the sender what it waits for."""
        axis = _pair(self.share, source, destination, self.num_ranks)
        here, there = self.pricing.communicators.classes(axis, self.rank.rank_class)
        phases = transfer_phases(self._transfer(source, destination), "dp", "gather parameters", ())
        draft, key = self.setting.draft, (axis, self.share.owner, self.number, here, there)
        task = draft.meet(key, self.rank.rank_class, lanes, phases, deps)
        draft.connect(task, here, there)
        return task

    def _transfer(self, source: int, destination: int) -> Transfer:
        axis = _pair(self.share, source, destination, self.num_ranks)
        size = self.share.count * self.setting.parameter_size
        transfer = self.pricing.communicators.transfer(axis, "send_recv", size, self.rank.rank_class)
        assert transfer is not None  # two ranks and more than no bytes
        return transfer


def _pair(share: Share, source: int, destination: int, num_ranks: int) -> str:
    ends = ((place + share.owner) % num_ranks for place in (source, destination))
    return f"pair {share.axis} {'>'.join(map(str, ends))}"
