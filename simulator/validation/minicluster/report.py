"""`clustersim validate minicluster`: predict, build the cluster, measure, compare; the page that keeps the results.

    python -m simulator.validation.minicluster.report docs/validation

runs the full suite and writes minicluster.json and minicluster.md there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from simulator.validation.minicluster import measuring
from simulator.validation.minicluster.cases import FULL, QUICK, CollectiveCases, Network, StepCase, Suite
from simulator.validation.minicluster.judging import Judged, judged, noise, summary
from simulator.validation.minicluster.predicting import (
    cluster_of,
    contention_seconds,
    sharing_seconds,
    step_prediction,
)

NOT_POSSIBLE = 2
STAGGER = 5e-4  # seconds between ranks that enter an all-gather or all-to-all, as in the fit

Tell = Callable[[str], None]


def validate_minicluster(quick: bool = False, as_json: bool = False) -> int:
    """Run the suite and print the result; returns the exit code (2: no minicluster can be built here)."""
    from simulator.calibration.minicluster.privileges import reason_against

    reason = reason_against() or _reason_against_torch()
    if reason is not None:
        print(f"clustersim: {reason}", file=sys.stderr)
        return NOT_POSSIBLE
    found = results(QUICK if quick else FULL, _tell)
    print(json.dumps(found, indent=1) if as_json else as_text(found))
    return 0


def results(suite: Suite, tell: Tell = lambda text: None) -> dict[str, Any]:
    """Everything that is reported: machine, scores, rows."""
    from simulator.calibration.microbenchmarks.session import prefer_this_process
    from simulator.calibration.minicluster.launch import terminated_like_interrupted

    prefer_this_process()
    began, before = time.monotonic(), os.getloadavg()
    with terminated_like_interrupted():
        rows = [row for part in (_sharing, _collectives, _contention, _steps) for row in part(suite, tell)]
    machine = {**describe(), "load_before": before, "load_after": os.getloadavg()}
    seconds = time.monotonic() - began
    return {"machine": machine, "seconds": seconds, **summary(rows), "rows": [asdict(row) for row in rows]}


def describe() -> dict[str, Any]:
    """The machine that stood in for the cluster."""
    import platform

    from simulator.calibration.microbenchmarks.device import Device
    from simulator.calibration.microbenchmarks.machine import describe_machine

    told = describe_machine(Device("cpu"), 0)
    del told["num_ranks"]
    return {
        **told,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "priority": _priority(),
    }


def _priority() -> str:
    try:
        return "real-time" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary"
    except (OSError, AttributeError):
        return "ordinary"


def _reason_against_torch() -> str | None:
    from importlib.util import find_spec

    return None if find_spec("torch") else "torch is not installed: pip install 'clustersim[calibrate]'"


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _by_network(cases: Sequence[Any]) -> Iterator[tuple[Network, list[Any]]]:
    for network in dict.fromkeys(case.network for case in cases):
        yield network, [case for case in cases if case.network == network]


def _sharing(suite: Suite, tell: Tell) -> Iterator[Judged]:
    for network, cases in _by_network(suite.sharing):
        predicted = {case.name: sharing_seconds(case) for case in cases}
        with measuring.built(network) as minicluster:
            for case in cases:
                tell(f"sharing: {case.name}")
                pairs = zip(case.flows, measuring.flows(minicluster, case), predicted[case.name], strict=True)
                for flow, runs, expected in pairs:
                    name = f"{case.name}: {flow.source} to {flow.destination}"
                    yield judged("sharing", name, median(runs), expected, noise(runs))


def _collectives(suite: Suite, tell: Tell) -> Iterator[Judged]:
    from simulator.calibration.fit_collectives import predicted
    from simulator.calibration.measured_collectives import measured_collectives
    from simulator.calibration.microbenchmarks.collective import MUTUAL, collective_case
    from simulator.calibration.microbenchmarks.store import Results
    from simulator.costs.collectives import library_for

    for network, tables in _by_network(suite.collectives):
        cluster = cluster_of(network)
        library = library_for(cluster.nodes[0], cluster.software)
        cases = [case for table in tables for case in _listed(table, collective_case, MUTUAL)]
        tell(f"{len(cases)} collectives")
        with measuring.built(network) as minicluster:
            found = measuring.benchmarks(minicluster, cases, repeats=5)
        rows = measured_collectives(Results({}, tuple(found)), cluster)
        for row, measurement in zip(rows, found, strict=True):
            rate = row.group.nic_bandwidth * 8e-6
            name = f"{row.op}, {row.group.num_ranks} ranks, {row.size / 1024:.0f} KiB, {rate:.0f} Mb/s"
            source = "all-to-all" if row.op == "all_to_all" else "collectives"
            spread = noise(_middle(measurement.seconds[row.op]))
            yield judged(source, name, row.seconds, predicted(library, row), spread)


def _listed(table: CollectiveCases, make: Callable[..., Any], mutual: Sequence[str]) -> Iterator[Any]:
    for op in table.ops:
        for ranks in table.ranks:
            for size in table.sizes:
                yield make(op, size, range(ranks), STAGGER * (op in mutual))


def _middle(values: Sequence[float]) -> list[float]:
    """Without the fastest and the slowest, where enough are left."""
    return sorted(values)[1:-1] if len(values) > 3 else list(values)


def _contention(suite: Suite, tell: Tell) -> Iterator[Judged]:
    from simulator.calibration.microbenchmarks.concurrent import concurrent_case, series_name

    for network, cases in _by_network(suite.contention):
        predicted = [contention_seconds(case) for case in cases]
        tell(f"{len(cases)} times several jobs at once")
        asked = [
            concurrent_case([(op, size, list(ranks)) for op, size, ranks in case.jobs]) for case in cases
        ]
        with measuring.built(network) as minicluster:
            found = measuring.benchmarks(minicluster, asked, repeats=5)
        for case, measurement, expected in zip(cases, found, predicted, strict=True):
            for number, part in enumerate(measurement.case["parts"]):
                series = measurement.seconds[series_name(number, part)]
                name = f"{case.name}: job {number + 1} of {len(case.jobs)}"
                yield judged("contention", name, median(series), expected[number], noise(_middle(series)))


def _steps(suite: Suite, tell: Tell) -> Iterator[Judged]:
    from simulator.validation.minicluster.activity import predicted_activity

    predictions = {}
    for number, case in enumerate(suite.steps, start=1):
        tell(f"predicting {number} of {len(suite.steps)} training steps")
        predictions[case.name] = step_prediction(case)
    for network, cases in _by_network(suite.steps):
        launches: dict[str, list[list[dict[str, Any]]]] = {case.name: [] for case in cases}
        with measuring.built(network) as minicluster:
            for launch in range(suite.launches):
                for ranks in sorted({case.ranks for case in cases}):
                    ours = [case for case in cases if case.ranks == ranks]
                    tell(f"launch {launch + 1}: {len(ours)} training steps of {ranks} ranks")
                    timed = measuring.training_steps(minicluster, ours, suite.num_steps, suite.num_warmups)
                    for case, steps in zip(ours, timed, strict=True):
                        launches[case.name].append(steps)
        for case in cases:
            prediction = predictions[case.name]
            yield from _judged_steps(
                case, launches[case.name], prediction.step_time_s, predicted_activity(prediction)
            )


def _judged_steps(
    case: StepCase, launches: list[list[dict[str, Any]]], predicted: float, activities: Sequence[Any]
) -> Iterator[Judged]:
    """The step time, and by how much each rank's activity was off."""
    from simulator.validation.minicluster.activity import activity, deviation

    medians = [median(step["seconds"] for step in steps) for steps in launches]
    every = [step for steps in launches for step in steps]
    spread = noise(medians) if len(medians) > 1 else noise([step["seconds"] for step in every])
    measured = median(medians)
    marks: dict[str, Any] = {"group": case.group, "developed_on": case.developed_on}
    yield judged("steps", case.name, measured, predicted, spread, **marks)
    for rank, expected in enumerate(activities):
        off = median(deviation(expected, activity(step["spans"][rank])) for step in every)
        yield Judged(
            "activity", f"{case.name}: rank {rank}", measured, predicted, spread, off / measured, **marks
        )


def as_text(found: dict[str, Any]) -> str:
    """The tables of the command and of the page, in Markdown."""
    lines = [
        "| source | rows | mean error | target | bias | worst | noise |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, s in found["sources"].items():
        lines.append(
            f"| {name} | {s['rows']} | {s['mape']:.1%} | {s['target']:.0%} | {s['bias']:+.1%} | {s['worst']:+.1%} | "
            f"{s['noise']:.1%} |"
        )
    unseen = found["steps_not_developed_on"]
    if unseen is not None:
        lines += [
            "",
            f"Steps that nobody had looked at before: {unseen['rows']}, mean error {unseen['mape']:.1%}.",
        ]
    told = found["order"]
    lines += ["", f"Order of strategies: {told['right']} of {told['pairs']} pairs right."]
    lines += [f"- wrong: {pair}" for pair in told["wrong"]]
    rows = [row for row in found["rows"] if row["source"] == "steps"]
    off = {row["name"].rpartition(": rank")[0]: 0.0 for row in found["rows"] if row["source"] == "activity"}
    for row in found["rows"]:
        if row["source"] == "activity":
            name = row["name"].rpartition(": rank")[0]
            off[name] = max(off[name], row["error"])
    lines += ["", "| training step | measured | predicted | error | noise | activity (worst rank) |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        times = f"{row['measured'] * 1e3:.0f} ms | {row['predicted'] * 1e3:.0f} ms"
        errors = f"{row['error']:+.1%} | {row['noise']:.1%} | {off[row['name']]:.1%}"
        lines.append(f"| {row['name']} | {times} | {errors} |")
    return "\n".join(lines)


def page(found: dict[str, Any]) -> str:
    """docs/validation/minicluster.md."""
    machine = found["machine"]
    before, after = machine["load_before"][0], machine["load_after"][0]
    return f"""# Validation on a minicluster

<!-- Made by `python -m simulator.validation.minicluster.report docs/validation`; do not edit. -->

Predicted first, then measured with the real PyTorch {machine["torch"]} and gloo on a cluster of network namespaces
(`clustersim validate minicluster`). Machine: {machine["processor"]}, {machine["cores"]} cores, Linux
{machine["kernel"]}, {machine["priority"]} priority; load average {before:.1f} before, {after:.1f} after; the suite
took {found["seconds"] / 60:.0f} minutes. Every row is in `minicluster.json`.

Collectives were fitted on other sizes at 100 Mb/s; flows, concurrent jobs and steps were never fitted. *Noise* is half
the range of the repeats over their median, for steps that of the launches. *Activity* is how far from the predicted
moment each stretch of a rank's computing began and ended, on average, over the step time.

{as_text(found)}
"""


def main(folder: Path) -> None:
    """Run the full suite and write its page and its rows."""
    found = results(FULL, _tell)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "minicluster.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (folder / "minicluster.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
