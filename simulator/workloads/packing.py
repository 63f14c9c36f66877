"""Which documents share a row of tokens? First fit, best fit, end to end, or none."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

Row = tuple[int, ...]
"""Lengths of the documents of one row, in order."""


def one_each(documents: Sequence[int], room: int) -> list[Row]:
    """A row per document."""
    return [(length,) for length in documents]


def end_to_end(documents: Sequence[int], room: int) -> list[Row]:
    """One after the other, cut wherever a row is full; the pieces are documents of their own."""
    rows: list[Row] = []
    row: list[int] = []
    left = room
    for length in documents:
        while length:
            piece = min(length, left)
            row.append(piece)
            length, left = length - piece, left - piece
            if not left:
                rows.append(tuple(row))
                row, left = [], room
    return [*rows, tuple(row)] if row else rows


def first_fit(documents: Sequence[int], room: int) -> list[Row]:
    """In order, each into the first row that has room for it."""
    rows: list[list[int]] = []
    left: list[int] = []
    for length in documents:
        place = next((i for i, free in enumerate(left) if free >= length), len(rows))
        if place == len(rows):
            rows.append([])
            left.append(room)
        rows[place].append(length)
        left[place] -= length
    return [tuple(row) for row in rows]


def best_fit(documents: Sequence[int], room: int) -> list[Row]:
    """The longest first, each into the row that it leaves least room in."""
    rows: list[list[int]] = []
    left: list[tuple[int, int]] = []  # (free tokens, row), ascending
    for length in sorted(documents, reverse=True):
        place = bisect_left(left, (length, -1))
        if place == len(left):
            free, row = room, len(rows)
            rows.append([])
        else:
            free, row = left.pop(place)
        rows[row].append(length)
        insort(left, (free - length, row))
    return [tuple(row) for row in rows]


PACKINGS: dict[str, Callable[[Sequence[int], int], list[Row]]] = {
    "none": one_each,
    "concatenate": end_to_end,
    "first_fit": first_fit,
    "best_fit": best_fit,
    "dealt": one_each,
}
"""Rule by name; every one takes documents and the tokens of a full row."""


def attended(row: Row, mask: str) -> Row:
    """Lengths that attention tells apart in a row: its documents, or (mask `row`) all of it."""
    return row if mask == "document" else (sum(row),)


def counted(lengths: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """(tokens, how many) of each length, the longest first."""
    return tuple(sorted(Counter(lengths).items(), reverse=True))
