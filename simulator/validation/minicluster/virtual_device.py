"""How does a rank compute for a known time without keeping a core busy, and what did it compute when?

A virtual device sleeps instead of computing. Work that follows without a gap is chained to the end of the work
before it, so that what a sleep overshoots is not added up: after a thousand kernels the clock is right to one sleep.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SLACK = 1e-3  # seconds; a start this soon after the last end counts as back to back


@dataclass
class VirtualDevice:
    """`spans` holds (begin, end, label) of every stretch of computing, in seconds of the machine's monotonic clock."""

    spans: list[tuple[float, float, str]] = field(default_factory=list)
    _free_at: float = 0.0

    def compute(self, seconds: float, label: str = "compute") -> None:
        """Be busy for so long, from the end of the last work if that was just now, else from now."""
        now = time.monotonic()
        begin = self._free_at if 0.0 <= now - self._free_at < SLACK else now
        end = begin + seconds
        left = end - now
        if left > 0.0:
            time.sleep(left)
        self._free_at = end
        self.spans.append((begin, end, label))

    def waited(self) -> None:
        """Something else than computing was waited for: the next work starts when it is asked for."""
        self._free_at = 0.0

    def take_spans(self) -> list[tuple[float, float, str]]:
        """The spans so far, which are then forgotten."""
        taken, self.spans = self.spans, []
        return taken
