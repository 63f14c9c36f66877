"""What a rule of a plan yields: (key, message) for everything that breaks it; keys are relative to the workload."""

from __future__ import annotations

from collections.abc import Iterator

Faults = Iterator[tuple[str, str]]
