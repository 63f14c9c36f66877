"""What a study is: cases to predict, values worked out from them, and what was published (`workloads/studies/`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from simulator.description.base import Description, Named
from simulator.description.faults import raise_if_any
from simulator.description.overrides import HEADS
from simulator.description.quantities import Fraction
from simulator.studies.expression import ExpressionError, parse

Where = str | dict[str, Any]


class Case(Description):
    """One design to predict, or a grid of them; what is left out is as in the study's `base`.

    In expressions a case is called by its name, one of a grid with its coordinates: `ours.mfu`, `ours[4, 512].mfu`.
    """

    cluster: Where | None = Field(default=None, description="Cluster: a catalogue name, or a mapping.")
    gpus: int | None = Field(default=None, gt=0, description="GPUs; as many as the job can use if left out.")
    workload: Where | None = Field(default=None, description="Workload: a catalogue name, or a mapping.")
    set: dict[str, Any] = Field(
        default_factory=dict, description="Settings as of `clustersim run --set`: key to value."
    )
    over: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="Grid: key to the values it takes; the first key is the first coordinate. A word without dots is "
        "a coordinate alone, for `derived`.",
    )
    derived: dict[str, str] = Field(
        default_factory=dict,
        description="Keys that follow from the coordinates: key to an expression in the last parts of `over`'s keys.",
    )

    @property
    def coordinates(self) -> list[str]:
        """What the coordinates are called in `derived`."""
        return [key.rpartition(".")[2] for key in self.over]


class Fit(Description):
    """A number that the publication does not give, found from some of its results; at most two per study."""

    value: float = Field(description="What was found; `clustersim study NAME --refit` finds it again.")
    low: float = Field(gt=0, description="No less than this ...")
    high: float = Field(gt=0, description="... and no more than this.")
    unit: str = Field(default="", description="Unit of the three; none where it is a plain number.")
    ours: tuple[str, ...] = Field(description="Expressions that are to come near ...")
    published: tuple[float, ...] = Field(description="... these.")
    why: str = Field(description="Why the number had to be fitted.")

    def setting(self, value: float) -> Any:
        """A value as it stands in `set`."""
        return f"{value!r} {self.unit}" if self.unit else value


class Check(Description):
    """One published number, and how near ours has to come."""

    name: str = Field(description="What is compared; `{x}` stands for a column of `each`.")
    ours: str = Field(description="Expression.")
    published: float | str | None = Field(
        default=None, description="Number or expression; null: none was given."
    )
    within: Fraction | None = Field(default=None, description="Agreement: at most this far off, relative.")
    low: float | str | None = Field(default=None, description="Or: no less than this (number or expression).")
    high: float | str | None = Field(default=None, description="Or: no more than this.")
    each: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="Columns of equal length: one check per row, their names usable as values.",
    )
    why: str = Field(description="Why that range counts as agreement.")
    gap: str | None = Field(default=None, description="Known to lie outside, and why.")


class Series(Description):
    """One line (or set of bars) of a plot."""

    label: str = Field(description="Legend.")
    ours: str | None = Field(default=None, description="Expression in `x`.")
    published: list[float] | str | None = Field(
        default=None, description="Published values, or an expression in `x`."
    )


class Plot(Description):
    """The counterpart of a published figure."""

    title: str = Field(description="What it shows, and of which figure it is the counterpart.")
    kind: Literal["lines", "bars"] = Field(
        default="bars", description="Lines over numbers, or bars over names."
    )
    x: list[Any] = Field(description="Values along x.")
    x_label: str = Field(default="", description="What x is.")
    y_label: str = Field(description="What y is, with its unit.")
    log: Literal["", "x", "y", "xy"] = Field(default="", description="Logarithmic axes.")
    series: tuple[Series, ...] = Field(description="What is drawn.")


class Study(Named):
    """A published system's what-if."""

    title: str = Field(description="System and publication.")
    about: str = Field(description="The question, what is compared, and what is not modelled.")
    base: Case = Field(default=Case(), description="What all cases have in common.")
    cases: dict[str, Case] = Field(default_factory=dict, description="Designs to predict, by name.")
    fits: dict[str, Fit] = Field(default_factory=dict, description="Fitted settings: key as in `set`.")
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Numbers, lists, or expressions (text); each may use those before it.",
    )
    checks: tuple[Check, ...] = Field(description="What was published, beside ours.")
    plots: tuple[Plot, ...] = Field(default=(), description="Pictures to draw (`--plots FOLDER`).")

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_if_any(
            [*self._check_names(), *self._check_settings(), *self._check_expressions(), *self._check_ranges()]
        )
        return self

    def _check_names(self) -> Iterator[tuple[str, str]]:
        for kind, names in (("cases", self.cases), ("values", self.values)):
            for name in names:
                if not name.isidentifier():
                    yield (
                        f"{kind}.{name}",
                        "must be a word of letters, digits and _, to be used in expressions",
                    )
        for name in set(self.cases) & set(self.values):
            yield f"values.{name}", "is also the name of a case"
        if len(self.fits) > 2:
            yield "fits", f"{len(self.fits)} fitted numbers; more than two explain anything"
        for key, fit in self.fits.items():
            if len(fit.ours) != len(fit.published):
                yield f"fits.{key}.published", f"{len(fit.published)} numbers for {len(fit.ours)} expressions"

    def _check_settings(self) -> Iterator[tuple[str, str]]:
        for where, case in (
            ("base", self.base),
            *((f"cases.{name}", case) for name, case in self.cases.items()),
        ):
            keys = [("set", key) for key in case.set] + [("derived", key) for key in case.derived]
            keys += [("over", key) for key in case.over if "." in key]
            for field, key in keys:
                if key.partition(".")[0] not in HEADS:
                    yield f"{where}.{field}.{key}", f"must start with one of {', '.join(HEADS)}"

    def _check_expressions(self) -> Iterator[tuple[str, str]]:
        for key, text, known in (*self._derived(), *self.expressions()):
            try:
                unknown = parse(text).names - known
            except ExpressionError as error:
                yield key, str(error)
                continue
            for name in sorted(unknown):
                yield key, f"there is no case, value or column called {name}"

    def _derived(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        for name, case in self.cases.items():
            for key, text in case.derived.items():
                yield f"cases.{name}.derived.{key}", text, frozenset(case.coordinates)

    def _check_ranges(self) -> Iterator[tuple[str, str]]:
        for index, check in enumerate(self.checks):
            key = f"checks.{index}"
            lengths = {len(column) for column in check.each.values()}
            if len(lengths) > 1:
                yield f"{key}.each", f"columns of unequal length: {', '.join(map(str, sorted(lengths)))}"
            if check.within is not None and check.published is None:
                yield f"{key}.within", "of what? `published` is missing"
            if (check.within is None) == (check.low is None and check.high is None):
                yield key, "give either within, or low and high (one of them at least)"

    def expressions(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """(key, text, names known there) of every expression but those of `derived`; values know those before them."""
        known = frozenset(self.cases)
        for name, value in self.values.items():
            if isinstance(value, str):
                yield f"values.{name}", value, known
            known |= {name}
        for key, fit in self.fits.items():
            for index, text in enumerate(fit.ours):
                yield f"fits.{key}.ours.{index}", text, known
        for index, check in enumerate(self.checks):
            for field in ("ours", "published", "low", "high"):
                text = getattr(check, field)
                if isinstance(text, str):
                    yield f"checks.{index}.{field}", text, known | set(check.each)
        for index, plot in enumerate(self.plots):
            for number, series in enumerate(plot.series):
                for field in ("ours", "published"):
                    text = getattr(series, field)
                    if isinstance(text, str):
                        yield f"plots.{index}.series.{number}.{field}", text, known | {"x"}
