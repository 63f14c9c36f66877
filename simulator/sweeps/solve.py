"""Which value of one number makes a prediction meet a condition? Found by bisection over the engine.

The range is sampled first. Where the answer rises and falls within it, the crossings that the samples show are all
given, and the result says that it is not monotone: between samples there may be more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, floor, log
from typing import Any

from simulator.description.faults import DescriptionError, KeyFaults
from simulator.simulation import simulate
from simulator.sweeps.changes import Design
from simulator.sweeps.objectives import Constraint, value_of
from simulator.workloads.plan_checks import workload_faults

SAMPLES = 9
TOLERANCE = 1e-3
"""Relative width at which a bisection ends."""

MOST_TRIED = 1000
"""Whole numbers that are asked whether the plan can run with them."""
SPAN = 64.0
"""A range that nobody gave reaches from the present value divided by this to the value times this."""


@dataclass(frozen=True)
class Sample:
    """The prediction at one value: None where the design cannot run there."""

    value: float
    answer: float | None

    def to_dict(self) -> dict[str, float | None]:
        return {"value": self.value, "answer": self.answer}


@dataclass(frozen=True)
class Solution:
    """`holds`: ranges of the value in which the condition holds, their ends found to TOLERANCE; empty if nowhere.

    `value` is the least value for which it holds, None if there is none. `monotone`: the sampled answers never turn.
    """

    key: str
    condition: str
    value: float | None
    written: str | None
    holds: tuple[tuple[float, float], ...]
    monotone: bool
    samples: tuple[Sample, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "condition": self.condition,
            "value": self.value,
            "written": self.written,
            "holds": [list(ends) for ends in self.holds],
            "monotone": self.monotone,
            "samples": [sample.to_dict() for sample in self.samples],
        }


def solve(
    design: Design,
    key: str,
    condition: Constraint,
    low: float | None = None,
    high: float | None = None,
    *,
    tokens: float | None = None,
) -> Solution:
    """Where `condition` holds as `key` goes from `low` to `high`.

    `tokens` makes `days` (to train on so many) a key that a condition may use. Raises KeyFaults for a key that is not
    there or is no number, and for a condition that is an equation or on what predictions do not have.
    """
    if condition.operator == "=":
        raise KeyFaults([("--until", f"{condition} holds at single values at the most; compare by <= or >=")])
    if condition.key == "days" and tokens is None:
        raise KeyFaults([("days", "needs the number of tokens to train on (--tokens)")])
    values = _values(design, key, low, high)
    search = _Search(design, key, condition, tokens)
    return search.solution(values, discrete=key == "gpus" or isinstance(design.value(key), int))


def _values(design: Design, key: str, low: float | None, high: float | None) -> list[float]:
    """What to sample: numbers of GPUs that the plan divides over, or a geometric grid."""
    now = design.value(key)
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise KeyFaults([(key, "is not a number that could be varied")])
    if key == "gpus":
        return _gpu_counts(design, low or 1, high or now)
    low, high = low or now / SPAN, high or now * SPAN
    if not 0.0 < low < high:
        raise KeyFaults([(key, f"the range {low:g} to {high:g} is empty or not positive")])
    if isinstance(now, int):
        return _whole_numbers(design, key, low, high)
    return _geometric(low, high, SAMPLES)


def _geometric(low: float, high: float, count: int) -> list[float]:
    steps = [exp(log(low) + (log(high) - log(low)) * i / (count - 1)) for i in range(count)]
    steps[0], steps[-1] = low, high
    return steps


def _whole_numbers(design: Design, key: str, low: float, high: float) -> list[float]:
    """Whole numbers from `low` to `high` with which the plan can run."""
    first, last = max(1, ceil(low)), floor(high)
    if last - first < MOST_TRIED:
        tried = list(range(first, last + 1))
    else:
        tried = sorted({round(value) for value in _geometric(first, last, MOST_TRIED)})
    found = [float(value) for value in tried if _runs(design.with_value(key, value))]
    if not found:
        raise KeyFaults([(key, f"the plan can run with no whole number from {low:g} to {high:g}")])
    return found


def _runs(design: Design) -> bool:
    """Whether no check refuses the plan."""
    return not workload_faults(design.workload) and not design.workload.faults_on(design.cluster.num_gpus)


def _gpu_counts(design: Design, low: float, high: float) -> list[float]:
    """Sizes that the plan and its batch divide over and that are whole nodes, from `low` to `high`."""
    replica = design.workload.plan.model_ranks
    found = []
    for replicas in range(1, int(high) // replica + 1):
        gpus = replicas * replica
        if gpus < low or design.workload.faults_on(gpus):
            continue
        try:
            design.cluster.scaled(gpus=gpus)
        except KeyFaults:
            continue
        found.append(float(gpus))
    if not found:
        raise KeyFaults([("gpus", f"the plan divides over no number of GPUs from {low:g} to {high:g}")])
    return found


class _Search:
    """Answers at values, each simulated once."""

    def __init__(self, design: Design, key: str, condition: Constraint, tokens: float | None) -> None:
        self.design, self.key, self.condition, self.tokens = design, key, condition, tokens
        self.known: dict[float, float | None] = {}

    def answer(self, value: float) -> float | None:
        if value not in self.known:
            self.known[value] = self._simulate(value)
        return self.known[value]

    def _simulate(self, value: float) -> float | None:
        now = self.design.value(self.key)
        changed = self.design.with_value(self.key, round(value) if isinstance(now, int) else value)
        try:
            prediction = simulate(changed.cluster, changed.workload)
        except DescriptionError:
            return None
        tree = prediction.to_dict()
        if self.tokens is not None:
            rate = prediction.tokens_per_s or prediction.samples_per_s
            tree["days"] = self.tokens / rate / 86400.0
        return value_of(tree, self.condition.key)

    def holds(self, value: float) -> bool:
        answer = self.answer(value)
        return answer is not None and self.condition.allows(answer)

    def solution(self, values: Sequence[float], discrete: bool) -> Solution:
        sampled = _thinned(values) if discrete else list(values)
        states = [self.holds(value) for value in sampled]
        middle: Callable[[float, float], float | None] = (
            (lambda a, b: _between(values, a, b)) if discrete else _geometric_middle
        )
        ranges, start = [], sampled[0] if states[0] else None
        for (a, before), (b, after) in pairwise(zip(sampled, states, strict=True)):
            if before == after:
                continue
            _, holding = self._bisected(a, b, before, middle)
            if after:
                start = holding
            else:
                ranges.append((start if start is not None else a, holding))
                start = None
        if start is not None:
            ranges.append((start, sampled[-1]))
        least = ranges[0][0] if ranges else None
        written = None if least is None else self.design.written(self.key, least)
        samples = tuple(Sample(value, self.known[value]) for value in sorted(self.known))
        return Solution(
            self.key, str(self.condition), least, written, tuple(ranges), _is_monotone(samples), samples
        )

    def _bisected(
        self, a: float, b: float, holds_at_a: bool, middle: Callable[[float, float], float | None]
    ) -> tuple[float, float]:
        """(last value found where it fails, nearest one where it holds) between a and b."""
        while True:
            value = middle(a, b)
            if value is None:
                return (b, a) if holds_at_a else (a, b)
            if self.holds(value) == holds_at_a:
                a = value
            else:
                b = value


def _geometric_middle(a: float, b: float) -> float | None:
    return None if b / a < 1.0 + TOLERANCE else (a * b) ** 0.5


def _between(values: Sequence[float], a: float, b: float) -> float | None:
    inside = [value for value in values if a < value < b]
    return inside[len(inside) // 2] if inside else None


def _thinned(values: Sequence[float]) -> list[float]:
    """SAMPLES of the values, both ends among them."""
    if len(values) <= SAMPLES:
        return list(values)
    positions = sorted({round(i * (len(values) - 1) / (SAMPLES - 1)) for i in range(SAMPLES)})
    return [values[position] for position in positions]


def _is_monotone(samples: Sequence[Sample]) -> bool:
    answers = [sample.answer for sample in samples if sample.answer is not None]
    steps = [b - a for a, b in pairwise(answers)]
    slack = 1e-9 * max((abs(answer) for answer in answers), default=0.0)
    return all(step >= -slack for step in steps) or all(step <= slack for step in steps)
