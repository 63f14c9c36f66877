"""Which documents run together, on how many GPUs each, so that the groups of a micro-batch finish nearly together?

As FlexSP does it (Wang et al. 2025, arXiv 2412.01523): documents are sorted by length and cut into micro-batches of
equal tokens; the GPUs of a micro-batch are divided into groups, of one width or of several, and documents dealt to
them, so that the slowest group takes as little time as possible and none holds more tokens than its memory has room
for.

How GPUs are divided is tried out, in the order of a lower bound and until no bound is below the best time found. Few
documents are dealt exactly, by branch and bound; more of them longest first to whoever would be done first, followed by
moves away from the slowest group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import ceil, inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.packing import best_fit

Floats = NDArray[np.float64]
Group = tuple[int, tuple[int, ...]]
"""(GPUs, lengths of its documents)"""

EXACT = 8
"""Documents that are dealt by trying out everything that might be better."""
MOST_DIVISIONS = 4096
"""Divisions of the GPUs that are bounded; where there are more, widths come in larger steps."""
MOST_TRIED = 48
"""Divisions to which documents are really dealt, of each micro-batch."""
MORE_MICRO_BATCHES = 3
"""How many micro-batches more than the fewest that fit are tried; in a pipeline, than the best number so far."""
STEPS_OF = 4
"""In a pipeline, numbers of micro-batches that are tried grow by one in so many."""
GRID = 96
"""Times at which the lower bound is looked up."""


class Costs(Protocol):
    """What the dealing expects a group to take."""

    def fixed(self, width: int) -> float:
        """Seconds of a micro-batch on `width` GPUs whatever it holds."""
        ...

    def document(self, length: int, width: int) -> float:
        """Seconds that a document adds to it."""
        ...


@dataclass(frozen=True)
class Dealt:
    """One micro-batch: its groups, the widest first, and the seconds expected of it."""

    groups: tuple[Group, ...]
    seconds: float


class NoRoom(ValueError):
    """Documents that fit no group."""


@dataclass(frozen=True)
class Dealer:
    """`num_gpus` GPUs in groups of `widths` (each a multiple of the one before), each with room for `room` tokens.

    `floor`: seconds that a micro-batch takes at least, because something else does. `stages`: of a pipeline, each of
    which takes a micro-batch's seconds for it.
    """

    num_gpus: int
    widths: tuple[int, ...]
    room: int
    costs: Costs
    floor: float = 0.0
    stages: int = 1

    def deal(self, documents: Iterable[int], groups: str, rule: str = "balanced") -> list[Dealt]:
        """The micro-batches of a step.

        `groups`: static (all of the largest width), adaptive (all of one width, the best for this step), or mixed.
        `rule`: balanced, or best_fit (groups of one width filled up one after the other). Raises NoRoom for a document
        longer than the widest group has room for.
        """
        lengths = sorted(documents, reverse=True)
        widths = self.widths[-1:] if groups == "static" else self.widths
        if lengths[0] > widths[-1] * self.room:
            raise NoRoom(
                f"a document of {lengths[0]} tokens does not fit {widths[-1]} GPUs with room for {self.room} each"
            )
        if rule == "best_fit":
            wide = [width for width in widths if lengths[0] <= width * self.room]
            return min((self._filled(lengths, width) for width in wide), key=self.seconds)
        best: list[Dealt] = []
        tries = 0
        for count in self._counts(lengths):
            chunks = in_chunks(lengths, count)
            for found in self._candidates(chunks, groups, widths):
                if not best or self.seconds(found) < self.seconds(best) * (1 - 1e-12):
                    best, tries = found, tries if self.stages == 1 else 0
            tries += bool(best)
            if tries > MORE_MICRO_BATCHES:
                break
        return best

    def seconds(self, step: Iterable[Dealt]) -> float:
        """Seconds expected of all micro-batches."""
        return seconds_of(step, self.stages)

    def _counts(self, lengths: Sequence[int]) -> Iterator[int]:
        """Numbers of micro-batches to try, from the fewest that may fit.

        A pipeline gains by many more, so that they come in larger steps the more there are.
        """
        count = -(-sum(lengths) // (self.num_gpus * self.room))
        while count <= len(lengths):
            yield count
            count += 1 if self.stages == 1 else max(1, count // STEPS_OF)

    def _candidates(
        self, chunks: Sequence[Sequence[int]], groups: str, widths: Sequence[int]
    ) -> Iterator[list[Dealt]]:
        """Ways to run these micro-batches: one for each width, or the best division of each."""
        if groups == "mixed":
            mixed = [self.best(chunk) for chunk in chunks]
            if all(mixed):
                yield [one for one in mixed if one is not None]
            return
        for width in widths:
            alike = [self.dealt(chunk, (width,) * (self.num_gpus // width)) for chunk in chunks]
            if all(alike):
                yield [one for one in alike if one is not None]

    def _filled(self, lengths: Sequence[int], width: int) -> list[Dealt]:
        """Groups of one width, each as full as it can be."""
        rows, count = best_fit(lengths, width * self.room), self.num_gpus // width
        rows += [()] * (-len(rows) % count)
        step = []
        for start in range(0, len(rows), count):
            held = rows[start : start + count]
            table = _Table.of([n for row in held for n in row], (width,) * count, self)
            places = [place for place, row in enumerate(held) for _ in row]
            seconds = max(self.floor, table.seconds(places))
            step.append(Dealt(tuple((width, row) for row in held), seconds))
        return step

    def best(self, lengths: Sequence[int]) -> Dealt | None:
        """One micro-batch on the best division of the GPUs; None if none has room."""
        bounds = self._bounds(lengths)
        order = np.argsort(bounds, kind="stable")
        alike = [i for i, counts in enumerate(self._divisions) if np.count_nonzero(counts) == 1]
        best: Dealt | None = None
        for place, index in enumerate([*alike, *order.tolist()]):
            beaten = best is not None and bounds[index] >= best.seconds * (1 - 1e-12)
            if place >= len(alike) and (beaten or place - len(alike) >= MOST_TRIED):
                break
            if beaten or not np.isfinite(bounds[index]):
                continue
            counts = self._divisions[index]
            division = [w for w, n in zip(self.widths[::-1], counts[::-1], strict=True) for _ in range(n)]
            found = self.dealt(lengths, division)
            if found is not None and (best is None or found.seconds < best.seconds * (1 - 1e-12)):
                best = found
        return best

    def dealt(self, lengths: Sequence[int], division: Sequence[int]) -> Dealt | None:
        """The documents, longest first, dealt to groups of these widths; None if they do not fit."""
        table = _Table.of(lengths, division, self)
        places = table.greedy()
        if places is None:
            return None
        places = table.exact(places) if len(lengths) <= EXACT else table.improved(places)
        held: list[list[int]] = [[] for _ in division]
        for length, place in zip(lengths, places, strict=True):
            held[place].append(length)
        # Groups of one width are alike: the order of documents must not decide which of them is where.
        pairs = zip(division, held, strict=True)
        groups = tuple(sorted(((width, tuple(some)) for width, some in pairs), reverse=True))
        return Dealt(groups, max(self.floor, table.seconds(places)))

    @cached_property
    def _known(self) -> dict[int, list[float]]:
        """Seconds that documents of a length add, by width, as far as they were asked for."""
        return {}

    def cost(self, lengths: Sequence[int]) -> Floats:
        """Seconds that documents add to groups, shape [documents, widths]."""
        for length in lengths:
            if length not in self._known:
                self._known[length] = [self.costs.document(length, width) for width in self.widths]
        return np.array([self._known[length] for length in lengths]).reshape(-1, len(self.widths))

    @cached_property
    def fixed(self) -> Floats:
        """Seconds of a micro-batch whatever it holds, by width."""
        return np.array([self.costs.fixed(width) for width in self.widths])

    @cached_property
    def _divisions(self) -> NDArray[np.int64]:
        """Numbers of groups of each width, shape [divisions, widths]."""
        step = 1
        while _num_divisions(self.num_gpus, _steps(self.widths, step)) > MOST_DIVISIONS:
            step *= 2
        steps = _steps(self.widths, step)
        shares = np.array(list(_shared_out(self.num_gpus, steps)), dtype=np.int64)
        counts = shares * (np.array(steps) // np.array(self.widths))
        alike = [
            [self.num_gpus // w if w == width else 0 for w in self.widths]
            for width in self.widths
            if self.num_gpus % width == 0
        ]
        return np.unique(np.concatenate([counts, np.array(alike, dtype=np.int64)]), axis=0)

    def _bounds(self, lengths: Sequence[int]) -> Floats:
        """Seconds that no dealing to each division can go below, inf where one cannot hold the documents.

        A document runs on groups wide enough to hold it and fast enough to be done in time. Those that need a certain
        width or more take at least the GPU time of their cheapest width, which the groups of such widths must offer.
        """
        widths = np.array(self.widths)
        fixed, cost, sizes = self.fixed, self.cost(lengths), np.array(lengths)
        holds = sizes[:, None] <= widths * self.room
        alone = np.where(holds, cost + fixed, inf)
        shortest = max(self.floor, float(alone.min(axis=1).max()))
        if not np.isfinite(shortest):
            return np.full(len(self._divisions), inf)
        longest = float(np.where(holds, cost, 0.0).max(axis=1).sum() + fixed.max())
        times = np.geomspace(max(shortest, 1e-12), max(longest, shortest, 1e-12) * (1 + 1e-9), GRID)
        offered = self._divisions * widths  # GPUs by width
        bounds = np.full(len(self._divisions), times[0])
        for low, time in pairwise(times.tolist()):
            allowed = alone <= time
            need = allowed.argmax(axis=1)  # the narrowest width, as a place in widths
            work = np.where(allowed, cost * widths, inf).min(axis=1)
            fits = np.ones(len(bounds), dtype=bool)
            for place in range(len(widths)):
                mine = need >= place
                gpu_time = (offered[:, place:] * np.maximum(0.0, time - fixed[place:])).sum(axis=1)
                fits &= work[mine].sum() <= gpu_time * (1 + 1e-12)
                fits &= sizes[mine].sum() <= offered[:, place:].sum(axis=1) * self.room
            bounds = np.where((bounds >= low) & ~fits, time, bounds)
        return np.where(bounds >= times[-1], inf, bounds)


def halves(widest: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `widest`, a power of two."""
    return tuple(2**i for i in range(widest.bit_length()))


def seconds_of(step: Iterable[Dealt], stages: int = 1) -> float:
    """Seconds expected of micro-batches that go through so many stages: all through one, the longest through the rest.

    Exact for a line of stages that are equally fast, in whatever order jobs of unequal length come (a proportionate
    flow shop, Pinedo, Scheduling).
    """
    times = [one.seconds for one in step]
    return sum(times) + (stages - 1) * max(times, default=0.0)


def in_chunks(lengths: Sequence[int], count: int) -> list[list[int]]:
    """At most `count` runs of neighbours whose largest sum is as small as can be."""
    low, high = max(max(lengths), ceil(sum(lengths) / count)), sum(lengths)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_cut(lengths, middle)) <= count else (middle + 1, high)
    return _cut(lengths, low)


def _cut(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Runs of neighbours, each as long as it can be with a sum of at most `most`."""
    chunks: list[list[int]] = [[]]
    total = 0
    for length in lengths:
        if total + length > most:
            chunks.append([])
            total = 0
        chunks[-1].append(length)
        total += length
    return chunks


def _steps(widths: Sequence[int], step: int) -> tuple[int, ...]:
    """GPUs that are given to each width at a time."""
    return tuple(max(width, step) for width in widths)


def _num_divisions(total: int, steps: Sequence[int]) -> int:
    """In how many ways multiples of the steps add up to `total`."""
    ways = [1] + [0] * total
    for step in steps:
        for amount in range(step, total + 1):
            ways[amount] += ways[amount - step]
    return ways[total]


def _shared_out(total: int, steps: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Those ways: how often each step is taken."""
    if len(steps) == 1:
        if total % steps[0] == 0:
            yield (total // steps[0],)
        return
    for count in range(total // steps[-1] + 1):
        for others in _shared_out(total - count * steps[-1], steps[:-1]):
            yield (*others, count)


@dataclass(frozen=True)
class _Table:
    """Documents against groups: `cost[document, group]` seconds, `fixed[group]` seconds, `room[group]` tokens."""

    sizes: NDArray[np.int64]
    cost: Floats
    fixed: Floats
    room: NDArray[np.int64]

    @staticmethod
    def of(lengths: Sequence[int], division: Sequence[int], dealer: Dealer) -> _Table:
        kind = np.searchsorted(dealer.widths, division)
        room = np.array(division) * dealer.room
        return _Table(
            np.array(lengths, dtype=np.int64), dealer.cost(lengths)[:, kind], dealer.fixed[kind], room
        )

    def seconds(self, places: Sequence[int]) -> float:
        return float(self._loads(places).max())

    def _loads(self, places: Sequence[int]) -> Floats:
        loads = self.fixed.copy()
        np.add.at(loads, list(places), self.cost[np.arange(len(places)), list(places)])
        return loads

    def greedy(self) -> list[int] | None:
        """Each to the group that would be done first; if that runs out of room, to the one with least room left."""
        return self._filled(tightly=False) or self._filled(tightly=True)

    def _filled(self, tightly: bool) -> list[int] | None:
        loads, room, places = self.fixed.copy(), self.room.copy(), []
        for size, cost in zip(self.sizes.tolist(), self.cost, strict=True):
            value = np.where(room >= size, room if tightly else loads + cost, inf)
            place = int(value.argmin())
            if value[place] == inf:
                return None
            loads[place] += cost[place]
            room[place] -= size
            places.append(place)
        return places

    def improved(self, places: list[int]) -> list[int]:
        """Documents move from the slowest group as long as that helps."""
        places, loads = list(places), self._loads(places)
        room = self.room.copy()
        np.subtract.at(room, places, self.sizes)
        for _ in range(2 * len(places)):
            slowest = int(loads.argmax())
            mine = [i for i, place in enumerate(places) if place == slowest]
            if not mine:
                break
            there = loads + self.cost[mine]
            there[:, slowest] = inf
            there[room < self.sizes[mine][:, None]] = inf
            here = loads[slowest] - self.cost[mine, slowest]
            after = np.maximum(there, here[:, None])
            row, place = divmod(int(after.argmin()), len(loads))
            if after[row, place] >= loads[slowest] * (1 - 1e-12):
                break
            document = mine[row]
            loads[slowest] -= self.cost[document, slowest]
            loads[place] += self.cost[document, place]
            room[slowest] += self.sizes[document]
            room[place] -= self.sizes[document]
            places[document] = place
        return places

    def exact(self, places: list[int]) -> list[int]:
        """The best dealing of all: branch and bound from the given one."""
        best, limit = list(places), self.seconds(places)
        loads, room, chosen = self.fixed.tolist(), self.room.tolist(), [0] * len(places)

        def visit(document: int) -> None:
            nonlocal best, limit
            if document == len(chosen):
                best, limit = list(chosen), max(loads)
                return
            seen = set()
            for place in np.argsort(np.array(loads) + self.cost[document], kind="stable").tolist():
                cost, size = float(self.cost[document, place]), int(self.sizes[document])
                alike = (loads[place], room[place], float(self.fixed[place]), cost)
                if alike in seen or room[place] < size or loads[place] + cost >= limit * (1 - 1e-12):
                    continue
                seen.add(alike)
                loads[place], before = loads[place] + cost, loads[place]
                room[place] -= size
                chosen[document] = place
                visit(document + 1)
                loads[place] = before
                room[place] += size

        if max(loads) < limit:
            visit(0)
        return best
