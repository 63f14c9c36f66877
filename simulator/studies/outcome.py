"""What comes out of a study: every check with ours, the published number, the range, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.description.faults import DescriptionError
from simulator.studies.cases import Cases
from simulator.studies.expression import ExpressionError, Layered, parse
from simulator.studies.study import Check, Study


@dataclass(frozen=True)
class Finding:
    """One check as it came out; `low` and `high` bound what counts as agreement (None: unbounded)."""

    name: str
    ours: float
    published: float | None
    low: float | None
    high: float | None
    why: str
    gap: str | None = None

    @property
    def ok(self) -> bool:
        above = self.low is None or self.ours >= self.low
        return above and (self.high is None or self.ours <= self.high)

    def to_dict(self) -> dict[str, Any]:
        """An entry of `clustersim study --json`."""
        keys = ("name", "ours", "published", "low", "high", "ok", "why", "gap")
        return {key: getattr(self, key) for key in keys}


@dataclass
class Outcome:
    """A study's findings, and its plots as numbers: per plot, per series, (ours, published) along x."""

    study: Study
    findings: list[Finding]
    names: Names
    fitted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {"checks": [finding.to_dict() for finding in self.findings]}


class Names(Mapping[str, Any]):
    """What expressions may name: the study's values, worked out once, and its cases."""

    def __init__(self, study: Study, cases: Cases) -> None:
        self._study = study
        self._cases = cases.named()
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._study.values:
            return self._cases[name]
        if name not in self._values:
            written = self._study.values[name]
            key = f"values.{name}"
            self._values[name] = (
                evaluate(self._study, key, written, self) if isinstance(written, str) else written
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._study.values
        yield from self._cases

    def __len__(self) -> int:
        return len(self._study.values) + len(self._cases)


def run_study(
    study: Study,
    fitted: Mapping[str, float] | None = None,
    announce: Callable[[str], None] = lambda name: None,
) -> Outcome:
    """Predict the cases that the checks ask for, and compare. `fitted` replaces the values of `fits`.

    Raises DescriptionError where a case cannot run or an expression has no value.
    """
    found = {**{key: fit.value for key, fit in study.fits.items()}, **(fitted or {})}
    names = Names(study, Cases(study, fitted_settings(study, found), announce))
    findings: list[Finding] = []
    for index, check in enumerate(study.checks):
        findings += _findings(study, f"checks.{index}", check, names)
    return Outcome(study, findings, names, found)


def fitted_settings(study: Study, found: Mapping[str, float]) -> dict[str, Any]:
    """The fitted settings with their units."""
    return {key: study.fits[key].setting(value) for key, value in found.items()}


def evaluate(study: Study, key: str, text: str, names: Mapping[str, Any]) -> Any:
    """The value of the expression at `key` of the study. Raises DescriptionError placed there."""
    try:
        return parse(text).value(names)
    except ExpressionError as error:
        raise DescriptionError([study.fault(key, str(error))]) from None


def _findings(study: Study, key: str, check: Check, names: Mapping[str, Any]) -> Iterator[Finding]:
    rows = [dict(zip(check.each, row, strict=True)) for row in zip(*check.each.values(), strict=True)] or [{}]
    for row in rows:
        known = Layered(row, names)

        def number(field: str, known: Mapping[str, Any] = known) -> float | None:
            written = getattr(check, field)
            found = evaluate(study, f"{key}.{field}", written, known) if isinstance(written, str) else written
            return None if found is None else float(found)

        ours, published = number("ours"), number("published")
        low, high = number("low"), number("high")
        if check.within is not None and published is not None:
            low, high = sorted((published * (1 - check.within), published * (1 + check.within)))
        name = check.name
        for column, value in row.items():
            name = name.replace(f"{{{column}}}", str(value))
        yield Finding(
            name, float("nan") if ours is None else ours, published, low, high, check.why, check.gap
        )
