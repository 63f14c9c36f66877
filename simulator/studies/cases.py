"""From the cases of a study to predictions, each made when an expression first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from simulator.studies.expression import parse
from simulator.studies.study import Case, Study

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction

Settings = Mapping[str, Any]


class Grid:
    """The predictions of a case that has coordinates: `grid[4, 512]`."""

    def __init__(self, case: Case, predict: Callable[[tuple[Any, ...]], Prediction]) -> None:
        self._predict = predict
        self._axes = list(case.over.values())

    def __getitem__(self, where: Any) -> Prediction:
        return self._predict(where if isinstance(where, tuple) else (where,))

    def points(self) -> Iterator[tuple[Any, ...]]:
        return product(*self._axes)


class Cases:
    """All cases of a study by name; `settings` (of fits) are laid over each."""

    def __init__(
        self, study: Study, settings: Settings, announce: Callable[[str], None] = lambda name: None
    ) -> None:
        self.study = study
        self.settings = settings
        self._announce = announce
        self._made: dict[tuple[Any, ...], Prediction] = {}

    def named(self) -> _Lazy:
        """Name → prediction or `Grid`, made when looked up."""
        return _Lazy(self)

    def find(self, name: str) -> Prediction | Grid:
        case = self.study.cases[name]
        if case.over:
            return Grid(case, lambda where: self._prediction(name, where))
        return self._prediction(name, ())

    def _prediction(self, name: str, where: tuple[Any, ...]) -> Prediction:
        case = self.study.cases[name]
        if len(where) != len(case.over) or any(
            value not in axis for value, axis in zip(where, case.over.values(), strict=True)
        ):
            raise KeyError(f"{name} has no {list(where)}")
        key = (name, where)
        if key not in self._made:
            self._announce(" ".join([name, *map(str, where)]))
            settings = {
                **self.study.base.set,
                **case.set,
                **{axis: value for axis, value in zip(case.over, where, strict=True) if "." in axis},
                **self.settings,
            }
            coordinates = dict(zip(case.coordinates, where, strict=True))
            settings |= {derived: parse(text).value(coordinates) for derived, text in case.derived.items()}
            self._made[key] = predicted(self.study.base, case, settings)
        return self._made[key]


class _Lazy(Mapping[str, Any]):
    def __init__(self, cases: Cases) -> None:
        self._cases = cases

    def __getitem__(self, name: str) -> Any:
        return self._cases.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._cases.study.cases)

    def __len__(self) -> int:
        return len(self._cases.study.cases)


def predicted(base: Case, case: Case, settings: Settings) -> Prediction:
    """One design. Raises DescriptionError where it is none."""
    from simulator.description.loading import load
    from simulator.description.overrides import HEADS
    from simulator.simulation import simulate
    from simulator.workloads.job_size import for_job

    parts: dict[str, dict[str, Any]] = {"cluster": {}, "workload": {}}
    for key, value in settings.items():
        head, _, rest = key.partition(".")
        parts[HEADS[head]][rest if head in ("cluster", "workload") else key] = value
    cluster = load("cluster", case.cluster or base.cluster or "", parts["cluster"])
    workload = load("workload", case.workload or base.workload or "", parts["workload"])
    gpus = case.gpus or base.gpus
    return simulate(cluster.scaled(gpus=gpus) if gpus else for_job(cluster, workload), workload)
