"""Which designs does a sweep consist of, in which order, and which of them are the same?"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import TYPE_CHECKING, Any

from simulator.sweeps.ranges import Range
from simulator.sweeps.sweep import SPECIAL, Sweep

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """One design of a sweep: its place in the sweep, and the settings that make it."""

    index: int
    settings: Settings


def points(sweep: Sweep) -> list[Point]:
    """All points in order: the grid's last key varies fastest, then come the list's entries, then the samples."""
    combinations = [dict(zip(sweep.grid, values, strict=True)) for values in product(*sweep.grid.values())]
    listed = list(sweep.points) or [{}]
    drawn = list(_drawn(sweep)) or [{}]
    settings = [
        {**sweep.base, **grid, **entry, **sample}
        for grid, entry, sample in product(combinations, listed, drawn)
    ]
    return [Point(index, one) for index, one in enumerate(settings)]


def _drawn(sweep: Sweep) -> Iterator[dict[str, Any]]:
    if sweep.sample is None:
        return
    source = random.Random(sweep.sample.seed)
    for _ in range(sweep.sample.count):
        yield {
            key: options.draw(source) if isinstance(options, Range) else source.choice(options)
            for key, options in sweep.sample.over.items()
        }


def design(sweep: Sweep, settings: Settings) -> tuple[Cluster, Workload]:
    """The cluster, of the size that is asked for or that the job can use, and the workload of a point.

    Raises DescriptionError with what is wrong with it.
    """
    from simulator.workloads.job_size import for_job

    for_cluster = {
        key.removeprefix("cluster."): v for key, v in settings.items() if key.startswith("cluster.")
    }
    for_workload = {
        key.removeprefix("workload."): v
        for key, v in settings.items()
        if key not in SPECIAL and not key.startswith("cluster.")
    }
    gpus = settings.get("gpus", sweep.gpus)
    name = str(settings.get("cluster", sweep.cluster))
    cluster = _cluster(name, None if gpus is None else int(gpus), _text(for_cluster))
    job = _workload(str(settings.get("workload", sweep.workload)), _text(for_workload))
    return (cluster if gpus is not None else for_job(cluster, job)), job


def _text(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


@lru_cache(maxsize=256)
def _cluster(name: str, gpus: int | None, settings: str) -> Cluster:
    import simulator

    return simulator.load_cluster(name, gpus, json.loads(settings))


@lru_cache(maxsize=256)
def _workload(name: str, settings: str) -> Workload:
    import simulator

    return simulator.load_workload(name, json.loads(settings))


def key_of(sweep: Sweep, settings: Settings) -> str:
    """What the result of a point depends on, as a hash: the resolved design, the search for its plan, the model.

    A point that cannot be resolved goes by its settings.
    """
    from simulator.description.faults import DescriptionError, KeyFaults

    try:
        cluster, job = design(sweep, settings)
        content: Any = [_dump(cluster), _dump(job)]
    except (DescriptionError, KeyFaults):
        content = dict(settings)
    best = None if sweep.best is None else sweep.best.model_dump(mode="json")
    text = json.dumps([content, best, version()], sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=256)
def _dump(description: Any) -> Any:
    """Everything but what is only told: names of files and sources of numbers."""
    return _without(description.model_dump(mode="json"), ("sources",))


def _without(tree: Any, names: tuple[str, ...]) -> Any:
    if isinstance(tree, dict):
        return {key: _without(value, names) for key, value in tree.items() if key not in names}
    return [_without(value, names) for value in tree] if isinstance(tree, list) else tree


@lru_cache(maxsize=1)
def version() -> str:
    """The model's version with a digest of the calibrations it works with."""
    from simulator.description import catalogue
    from simulator.description.kinds import CALIBRATIONS
    from simulator.simulation import MODEL_VERSION

    digest = sha256()
    for kind in CALIBRATIONS:
        for name, path in catalogue.entries(kind).items():
            digest.update(f"{kind}/{name}\n".encode())
            digest.update(path.read_bytes())
    return f"{MODEL_VERSION}+{digest.hexdigest()[:12]}"
