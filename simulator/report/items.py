"""A line of items (`nic 8.1 % · hbm 12.7 %`) that breaks between items only."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

BETWEEN = " · "


class Items:
    """Items parted by BETWEEN; one that is longer than the line breaks as text does."""

    def __init__(self, line: str) -> None:
        self._items = line.split(BETWEEN)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for item in self._items:
            longer = line + BETWEEN + item if line else item
            if line and len(longer + BETWEEN.rstrip()) > options.max_width:
                yield Text(line + BETWEEN.rstrip())
                longer = item
            line = longer
        yield Text(line)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        whole = len(BETWEEN.join(self._items))
        longest = max(len(item + BETWEEN.rstrip()) for item in self._items)
        return Measurement(min(longest, options.max_width), min(whole, options.max_width))


def indented(line: str) -> Padding:
    """Items two columns in, on every line that they take."""
    return Padding(Items(line), (0, 0, 0, 2))
