"""Which plan is best? Bounds for all, simulation for those that might be, and a proof that no other is better.

Plans are simulated in the order of their bounds. Once a bound reaches the worst of the best plans found, neither that
plan nor any after it can be better: the bound never exceeds what the engine answers. Which plans are simulated, and so
the certificate, does not depend on how many processes there are.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.description.faults import DescriptionError
from simulator.simulation import simulate
from simulator.sweeps.bound import Bound, Bounds
from simulator.sweeps.constraint_bounds import excluding, is_bounded
from simulator.sweeps.given_plans import unbounded
from simulator.sweeps.objectives import Constraint, Objective
from simulator.sweeps.price_book import PriceBook
from simulator.sweeps.processes import Pool, Task, serial
from simulator.sweeps.space import Plans, Space, plans

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.results.prediction import Prediction
    from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class Trial:
    """What the simulation of one plan gave; `refused` says why it is not among the best, if it is not."""

    value: float
    step_time: float
    refused: str | None = None


@dataclass(frozen=True)
class Certificate:
    """Why the best plans are the best.

    `plans` = sum of `infeasible` (by reason: the check that refuses a plan, memory, or a constraint that the plan's
    bounds break) + `pruned` + `simulated`. `refused`: simulated plans that do not fit or break a constraint.
    `best_pruned_bound`: the least bound of the objective among pruned plans, None if there is none. `open`: of the
    pruned, those that the bound does not exclude, because the search was told to stop before; with none, the best
    plans are proven to be.
    """

    plans: int
    infeasible: Mapping[str, int]
    pruned: int
    simulated: int
    refused: Mapping[str, int]
    best_pruned_bound: float | None
    best_pruned_bound_s: float | None
    open: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "plans": self.plans,
            "infeasible": dict(self.infeasible),
            "pruned": self.pruned,
            "simulated": self.simulated,
            "refused": dict(self.refused),
            "best_pruned_bound_s": self.best_pruned_bound_s,
            "best_pruned_bound": self.best_pruned_bound,
            "open": self.open,
        }


@dataclass(frozen=True)
class SearchResult:
    """The best plans, best first, with the proof."""

    best: tuple[Prediction, ...]
    certificate: Certificate
    objective: str
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """The object of `clustersim search --json` (design, section 8)."""
        return {
            "best": [prediction.to_dict() for prediction in self.best],
            "certificate": self.certificate.to_dict(),
            "objective": self.objective,
            "wall_s": self.wall_s,
        }


@dataclass
class Progress:
    """How far a search is, for whoever watches: called with the number simulated and the best value so far."""

    report: Callable[[int, float | None, float], None] = lambda simulated, best, bound: None


@dataclass
class _Found:
    """The best trials so far, as (value, rank in the order of bounds)."""

    top: int
    best: list[tuple[float, int]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, trial: Trial, rank: int) -> None:
        if trial.refused is not None:
            self.refused[trial.refused] += 1
        else:
            insort(self.best, (trial.value, rank))
            del self.best[self.top :]

    @property
    def threshold(self) -> float:
        """A plan must be below this to matter."""
        return self.best[-1][0] if len(self.best) == self.top else float("inf")


def search(
    cluster: Cluster,
    workload: Workload,
    objective: Objective,
    *,
    space: Space = Space(),
    constraints: Sequence[Constraint] = (),
    top: int = 1,
    most: int | None = None,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """The `top` best plans of `workload` on all GPUs of `cluster`; of the first `most` by their bounds, if given.

    Raises KeyFaults for a constraint on a key that predictions do not have, DescriptionError for settings that the
    bound does not know.
    """
    began = perf_counter()
    unknown = unbounded(workload)
    if unknown is not None:
        key, what = unknown
        message = (
            f"{what} no lower bound, so nothing proves a plan the best; `clustersim sweep` compares plans"
        )
        raise DescriptionError([workload.fault(key, message)])
    if workload.plan.zero3.parts != "even":
        message = "search compares plans of equal shards; leave parts out, or compare plans with a sweep"
        raise DescriptionError([workload.fault("plan.zero3.parts", message)])
    undecided = workload.plan.zero3.undecided
    if undecided is not None:
        message = (
            "search needs a number here: what is found by simulating has no bound that proves a plan the best"
        )
        raise DescriptionError([workload.fault(f"plan.zero3.{undecided}", message)])
    known = plans(workload, cluster.num_gpus, space)
    bound = Bound(PriceBook(cluster, workload))
    peak = bound.peak_bytes(known.table)
    fitting = np.flatnonzero(peak <= max(group.node.gpu.memory.total for group in cluster.node_groups))
    times = bound.times(known.table.take(fitting))
    bounds = Bounds(times.step_time, peak[fitting], times.kernel_seconds)
    least = objective.bound(cluster, bounds)
    allowed, broken = excluding(constraints, cluster, workload, bounds)
    order = allowed[np.argsort(least[allowed], kind="stable")]
    task = Task(_try, (cluster, known.table.take(fitting), objective, tuple(constraints)))
    if not len(order) and len(fitting):
        _check_keys(constraints, cluster, workload, known.table.job(int(fitting[np.argmin(least)])))
    wanted = order[:most].tolist()
    found, simulated = _simulate_in_order(wanted, least, task, top, pool, progress or Progress())
    pruned = order[simulated:]
    certificate = Certificate(
        plans=known.total,
        infeasible={**_reasons(known, len(known.table) - len(fitting)), **broken},
        pruned=len(pruned),
        simulated=simulated,
        refused=dict(found.refused),
        best_pruned_bound=float(least[pruned[0]]) if len(pruned) else None,
        best_pruned_bound_s=float(bounds.step_time[pruned].min()) if len(pruned) else None,
        open=int((least[pruned] < found.threshold).sum()),
    )
    best = tuple(simulate(cluster, known.table.job(int(fitting[order[rank]]))) for _, rank in found.best)
    return SearchResult(best, certificate, objective.name, perf_counter() - began)


def _reasons(known: Plans, too_large: int) -> dict[str, int]:
    return {**known.infeasible, **({"memory": too_large} if too_large else {})}


def _check_keys(
    constraints: Sequence[Constraint], cluster: Cluster, workload: Workload, job: Workload
) -> None:
    """Raise KeyFaults for a key that predictions do not have, where no plan is left whose simulation would tell."""
    unknown = [one for one in constraints if not is_bounded(one.key, cluster, workload)]
    tree = simulate(cluster, job).to_dict() if unknown else {}
    for constraint in unknown:
        constraint.holds(tree)


def _simulate_in_order(
    order: Sequence[int],
    least: np.ndarray[Any, Any],
    task: Task,
    top: int,
    pool: Pool | None,
    progress: Progress,
) -> tuple[_Found, int]:
    """(the best found, how many of `order` were simulated)."""
    found, simulated = _Found(top), 0
    wanted = iter(order)

    def due() -> Iterator[int]:
        for index in wanted:
            if least[index] >= found.threshold:
                return
            yield index

    for index, trial in (pool.stream if pool is not None else serial)(task, due()):
        if least[index] >= found.threshold:
            break  # started before a better one was known
        found.add(trial, simulated)
        simulated += 1
        progress.report(simulated, found.best[0][0] if found.best else None, float(least[index]))
    return found, simulated


def _try(shared: tuple[Any, ...], index: int) -> Trial:
    """Simulate the plan at a position; never raises for what is wrong with a plan."""
    cluster, table, objective, constraints = shared
    try:
        prediction = simulate(cluster, table.job(index))
    except DescriptionError as error:
        return Trial(float("inf"), float("inf"), error.faults[0].key)
    if not prediction.memory.fits:
        return Trial(float("inf"), prediction.step_time_s, "memory")
    if constraints:
        tree = prediction.to_dict()
        for constraint in constraints:
            if not constraint.holds(tree):
                return Trial(float("inf"), prediction.step_time_s, str(constraint))
    return Trial(objective.value(prediction), prediction.step_time_s)
