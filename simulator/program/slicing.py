"""What runs while each slice of a layer's parameters is there: its chain, cut into stretches of equal kernel time.

Operator splitting (Jiang et al. 2022, OSDP): a matrix product is a sum over slices of its weights, so that a layer
works through its slices one after the other. At a given number of tokens a kernel's time goes with the weights that it
reads, so that equal slices are equal stretches of time. What carries a collective is not cut and runs where that
begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from simulator.program.chains import Chain, Launches, Piece
from simulator.program.program import Phase

KERNELS = ("compute", "recompute", "padding")
"""Kinds of phases whose work is seconds of the GPU."""

Row = tuple[Phase, str, Piece]
"""(phase, its axis, its piece of a collective), as in a chain."""


def sliced(chain: Chain, count: int) -> list[Chain]:
    """The chain in `count` parts of equal kernel time, which do its work together."""
    total = sum(_seconds(phase) for phase in chain.phases)
    parts: list[list[Row]] = [[] for _ in range(count)]
    began: dict[tuple[str, int], int] = {}
    done = 0.0
    for phase, axis, piece in zip(chain.phases, chain.axes, chain.pieces, strict=True):
        start, seconds = (done * count / total, _seconds(phase) * count / total) if total else (0.0, 0.0)
        if axis:
            where = began.setdefault((axis, piece[0]), min(int(start), count - 1))
            parts[where].append((phase, axis, piece))
        else:
            for where, share in _shares(start, seconds, count):
                parts[where].append((_part(phase, share, share_is_first=where == int(start)), axis, piece))
        done += _seconds(phase)
    return list(_chains(chain, parts))


def _seconds(phase: Phase) -> float:
    return phase.work if phase.kind in KERNELS else 0.0


def _shares(start: float, length: float, count: int) -> Iterator[tuple[int, float]]:
    """(part, share) of a stretch of [0, count), of which every part is one long."""
    first = min(int(start), count - 1)
    last = min(int(start + length), count - 1)
    for where in range(first, last + 1):
        begin, end = max(start, float(where)), start + length if where == last else float(where + 1)
        share = (end - begin) / length if length else 1.0
        if share > 1e-12:
            yield where, share


def _part(phase: Phase, share: float, share_is_first: bool) -> Phase:
    return phase._replace(
        work=phase.work * share,
        latency=phase.latency if share_is_first else 0.0,
        flops=phase.flops * share,
        hbm_bytes=phase.hbm_bytes * share,
    )


def _chains(whole: Chain, parts: Sequence[Sequence[Row]]) -> Iterator[Chain]:
    """The host launches each part's kernels with it; it waits for the device where it did in the whole."""
    share = 1.0 / len(parts)
    head = Launches(whole.head.seconds * share, whole.head.host * share, whole.head.bound * share)
    before: Counter[str] = Counter()
    for index, rows in enumerate(parts):
        counts = Counter(axis for axis, _ in {(axis, number) for _, axis, (number, _) in rows if axis})
        yield Chain(
            phases=tuple([phase for phase, _, _ in rows]),
            axes=tuple([axis for _, axis, _ in rows]),
            pieces=tuple([(number - before[axis], piece) for _, axis, (number, piece) in rows]),
            collectives=tuple(counts.items()),
            seconds=whole.seconds * share,
            host=whole.host * share,
            head=head,
            tail=whole.tail if index == len(parts) - 1 else None,
        )
        before += counts
