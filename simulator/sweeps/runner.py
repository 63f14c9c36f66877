"""Runs the points of a sweep that have no result yet, on any pool, and stores each as soon as it is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from simulator.description.faults import DescriptionError, KeyFaults
from simulator.sweeps.export import check_front
from simulator.sweeps.points import Point, Settings, design, key_of
from simulator.sweeps.processes import LostWorkError, Pool, Task, serial
from simulator.sweeps.store import DONE, FAILED, INVALID, Outcome, Store
from simulator.sweeps.sweep import Sweep

BATCH_SECONDS = 0.2
"""Work that goes to a process at a time: handing it over should cost nothing beside it."""

MOST_AT_ONCE = 64

Batch = tuple[Settings, ...]


@dataclass
class Progress:
    """How far a sweep is, for whoever watches: called with the number of points done and of all."""

    report: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Summary:
    """What a run of a sweep did: points that had results before, and that it added by status."""

    total: int
    before: int
    added: dict[str, int]


def run(
    sweep: Sweep,
    every: Sequence[Point],
    store: Store,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Bring the store up to date; whatever stops this loses nothing that is finished.

    Raises KeyFaults as soon as there is a prediction that lacks a number of the sweep's `pareto`.
    """
    keys = {point.index: key_of(sweep, point.settings) for point in every}
    known = store.keys()
    missing: dict[str, Point] = {}
    for point in every:
        if keys[point.index] not in known:
            missing.setdefault(keys[point.index], point)
    distinct = len(set(keys.values()))
    before = distinct - len(missing)
    watch = progress or Progress()
    watch.report(before, distinct)
    keys_set = {key for point in every for key in point.settings}
    first = store.done()
    if first is not None:
        check_front(sweep, keys_set, first)
    added: dict[str, int] = {}
    queue = _Queue(deque(missing.items()))
    stream = pool.stream if pool is not None else serial
    while queue.waiting:  # again for points of a batch that was lost
        for batch, results in stream(Task(_run_batch, sweep), queue.batches(), ordered=False):
            rows = queue.finished(batch, results)
            store.add(rows)
            for _, _, outcome in rows:
                if first is None and outcome.status == DONE:
                    first = outcome
                    check_front(sweep, keys_set, first)
                added[outcome.status] = added.get(outcome.status, 0) + 1
            watch.report(before + sum(added.values()), distinct)
    return Summary(distinct, before, dict(sorted(added.items())))


@dataclass
class _Queue:
    """Missing points, handed out in batches that take about BATCH_SECONDS."""

    waiting: deque[tuple[str, Point]]
    seconds: float = BATCH_SECONDS  # of one point, as far as is known
    handed: dict[int, list[tuple[str, Point]]] = field(default_factory=dict)
    number: int = 0

    def batches(self) -> Iterator[tuple[int, Batch]]:
        while self.waiting:
            count = max(1, min(MOST_AT_ONCE, int(BATCH_SECONDS / self.seconds)))
            taken = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
            self.number += 1
            self.handed[self.number] = taken
            yield self.number, tuple(point.settings for _, point in taken)

    def finished(self, batch: tuple[int, Batch], results: Any) -> list[tuple[str, Settings, Outcome]]:
        taken = self.handed.pop(batch[0])
        if isinstance(results, LostWorkError):
            if len(taken) > 1:  # one of them kills its process: find out which
                self.waiting.extend(taken)
                self.seconds = BATCH_SECONDS
                return []
            results = ([Outcome(FAILED, {"error": str(results)})], 0.0)
        outcomes, seconds = results
        self.seconds = 0.7 * self.seconds + 0.3 * max(1e-4, seconds / len(taken))
        return [(key, point.settings, outcome) for (key, point), outcome in zip(taken, outcomes, strict=True)]


def _run_batch(sweep: Sweep, batch: tuple[int, Batch]) -> tuple[list[Outcome], float]:
    began = perf_counter()
    outcomes = [outcome_of(sweep, settings) for settings in batch[1]]
    return outcomes, perf_counter() - began


def outcome_of(sweep: Sweep, settings: Settings) -> Outcome:
    """Run one point; what is wrong with it is its outcome, not an exception."""
    try:
        cluster, job = design(sweep, settings)
        if sweep.best is None:
            from simulator.simulation import simulate

            return Outcome(DONE, answer(simulate(cluster, job)))
        return _best(sweep, cluster, job)
    except (DescriptionError, KeyFaults) as error:
        return Outcome(INVALID, {"error": str(error)})
    except Exception as error:  # one point must not end a sweep of thousands
        return Outcome(FAILED, {"error": f"{type(error).__name__}: {error}"})


def _best(sweep: Sweep, cluster: Any, job: Any) -> Outcome:
    from simulator.sweeps.objectives import Constraint, objective
    from simulator.sweeps.search import search
    from simulator.sweeps.space import space_of_values

    best = sweep.best
    if best is None:
        raise ValueError("the sweep asks for no search")
    result = search(
        cluster,
        job,
        objective(best.objective, cluster),
        space=space_of_values(best.values),
        constraints=[Constraint.parse(text, "best.constraints") for text in best.constraints],
    )
    if not result.best:
        refused = {**result.certificate.infeasible, **result.certificate.refused}
        return Outcome(
            INVALID, {"error": "no plan fits: " + ", ".join(f"{k} {n}" for k, n in refused.items())}
        )
    return Outcome(DONE, answer(result.best[0]) | {"certificate": result.certificate.to_dict()})


def answer(prediction: Any) -> dict[str, Any]:
    """A prediction's object without what differs from run to run."""
    tree: dict[str, Any] = prediction.to_dict()
    meta = dict(tree["meta"])
    meta["engine"] = {key: value for key, value in meta["engine"].items() if key != "wall_s"}
    tree["meta"] = meta
    return tree
