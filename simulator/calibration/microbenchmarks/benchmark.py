"""What does a benchmark module offer, and which are there?

To add one: a file whose name stands in BENCHMARK_MODULES, with a function that lists its cases for a scope
and one that prepares a case, both registered by `register`. `prepare` runs on the ranks of the case only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from simulator.calibration.microbenchmarks import BENCHMARK_MODULES
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device
from simulator.calibration.microbenchmarks.groups import Groups

Trial = Callable[[int], dict[str, float]]
"""Performs the case so many times back to back and returns the seconds for each time, by series."""


@dataclass(frozen=True)
class Scope:
    """What a session measures: on which kind of device, with how many ranks, up to which message size in bytes.

    `stagger`: seconds between one rank and the next when they enter a collective that depends on who comes first.
    """

    device: str  # cpu | cuda
    num_ranks: int
    smallest: int = 4 << 10
    largest: int = 64 << 20
    quick: bool = False
    stagger: float = 0.0

    def sizes(self) -> list[int]:
        """Message sizes in bytes: every second power of two (quick: every sixth), both ends included."""
        step = 64 if self.quick else 4
        sizes, size = [], self.smallest
        while size < self.largest:
            sizes.append(size)
            size *= step
        return [*sizes, self.largest]

    def group_sizes(self) -> list[int]:
        """2, 4, 8, ... ranks, and all of them."""
        powers = [1 << i for i in range(1, 12) if 1 << i < self.num_ranks]
        return [*powers, self.num_ranks] if self.num_ranks > 1 else []


@dataclass(frozen=True)
class Benchmark:
    name: str
    cases: Callable[[Scope], list[Case]]
    prepare: Callable[[Case, Device, Groups], Trial]


_REGISTERED: dict[str, Benchmark] = {}


def register(
    name: str, cases: Callable[[Scope], list[Case]], prepare: Callable[[Case, Device, Groups], Trial]
) -> None:
    _REGISTERED[name] = Benchmark(name, cases, prepare)


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name, in the order of the table of contents."""
    for name in BENCHMARK_MODULES:
        import_module(f"simulator.calibration.microbenchmarks.{name}")
    return {name: _REGISTERED[name] for name in BENCHMARK_MODULES}


def cases_of(scope: Scope, names: list[str] | None = None) -> list[Case]:
    """All cases of the named benchmarks (default: all). Raises ValueError for a name that does not exist."""
    known = benchmarks()
    wrong = [name for name in names or [] if name not in known]
    if wrong:
        raise ValueError(f"no benchmark {', '.join(wrong)} (there are: {', '.join(known)})")
    return [case for name in names or known for case in known[name].cases(scope)]
