"""What the process groups of a job are, whether its pipeline stages have equal degrees (`Grid`) or not."""

from __future__ import annotations

from typing import Protocol

from simulator.ranks.grid import Ranks


class Layout(Protocol):
    """Ranks in their process groups; layouts that say the same are equal."""

    def __hash__(self) -> int: ...

    @property
    def world(self) -> int: ...

    @property
    def slots(self) -> Ranks:
        """Place of each rank along cp, then dp, shape [world]."""
        ...

    def coordinate(self, axis: str) -> Ranks:
        """Position of each rank along a basic axis, shape [world]."""
        ...

    def axis_at(self, axis: str, stage: int) -> str:
        """The name under which `groups` knows what ranks of a stage call that axis."""
        ...

    def groups(self, axis: str) -> Ranks:
        """Process groups, shape [groups, size]."""
        ...
