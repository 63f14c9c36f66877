"""What is one measurement of, and under which key is it stored?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """One thing to measure: the benchmark's name and its parameters (numbers, strings, lists and mappings of them)."""

    benchmark: str
    parameters: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same for equal cases in every process and session: canonical JSON."""
        return json.dumps([self.benchmark, self.parameters], sort_keys=True, separators=(",", ":"))

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    @property
    def groups(self) -> list[tuple[tuple[int, ...], int]]:
        """(ranks, copy) of each process group it needs; copies are separate groups of equal ranks."""
        parts = self.parameters.get("parts")
        if parts is not None:
            return [(tuple(part["ranks"]), number) for number, part in enumerate(parts)]
        ranks = self.ranks
        return [(ranks, 0)] if len(ranks) > 1 else []

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that take part; kernels run on rank 0 alone."""
        parts = self.parameters.get("parts")
        if parts is not None:
            return tuple(sorted({rank for part in parts for rank in part["ranks"]}))
        return tuple(self.parameters.get("ranks", (0,)))
