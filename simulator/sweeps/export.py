"""The results of a sweep as a table, in files that are the same byte for byte whenever the results are."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from simulator.description.faults import KeyFaults, listing, suggestion
from simulator.sweeps.pareto import pareto_front
from simulator.sweeps.points import Point, key_of
from simulator.sweeps.store import DONE, Outcome, Store
from simulator.sweeps.sweep import Sweep

LEFT_OUT = ("meta", "critical_path", "memory.by_stage", "memory.rank_class")
"""Of a prediction's object; the store has them."""

BEST_PLAN = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "zero",
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "schedule",
)
"""Columns that a sweep over best plans has besides."""

Row = dict[str, Any]


def rows(sweep: Sweep, every: Sequence[Point], store: Store) -> list[Row]:
    """One row per point in the sweep's order: settings, status, numbers of the prediction, and `pareto`.

    Points without a result are left out.
    """
    outcomes = store.outcomes()
    found = []
    for point in every:
        outcome = outcomes.get(key_of(sweep, point.settings))
        if outcome is not None:
            found.append(_row(sweep, point, outcome))
    for row, kept in zip(found, on_front(sweep, found), strict=True):
        row["pareto"] = kept
    return found


def _row(sweep: Sweep, point: Point, outcome: Outcome) -> Row:
    row: Row = {"point": point.index, **{key: _written(value) for key, value in point.settings.items()}}
    row["status"] = outcome.status
    row["error"] = outcome.answer.get("error", "") if outcome.status != DONE else ""
    if outcome.status == DONE:
        if sweep.best is not None:
            plan = outcome.answer["meta"]["plan"]
            row |= {f"best.{key}": _written(plan[key]) for key in BEST_PLAN}
        row |= dict(_flat(outcome.answer))
    return row


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{above}{key}"
        if name in LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif not isinstance(value, list):
            yield name, value


def _written(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def on_front(sweep: Sweep, table: Sequence[Row]) -> list[bool]:
    """Whether each row is on the Pareto front: points that fit, by the sweep's `pareto`.

    Raises KeyFaults for a number that no prediction has.
    """
    names = [(name, 1.0) for name in sweep.pareto.minimize] + [(name, -1.0) for name in sweep.pareto.maximize]
    fitting = [row.get("memory.fits") is True for row in table]
    if any(fitting):
        known = {key for row in table for key in row if isinstance(row[key], int | float)}
        _raise_for([name for name, _ in names if not any(name in row for row in table)], known)
    values = np.full((len(table), len(names)), np.nan)
    for index, (row, ok) in enumerate(zip(table, fitting, strict=True)):
        if ok:
            values[index] = [_number(row.get(name)) * sign for name, sign in names]
    front: list[bool] = pareto_front(values).tolist()
    return front


VARYING = ("breakdown_s", "utilization", "sensitivity")
"""Parts of a prediction whose keys differ from point to point."""


def check_front(sweep: Sweep, settings: Collection[str], outcome: Outcome) -> None:
    """Raise KeyFaults for a number of the sweep's `pareto` that no point can have, as the first `outcome` tells.

    `settings`: the keys that any point sets.
    """
    row = _row(sweep, Point(0, {}), outcome)
    names = [*sweep.pareto.minimize, *sweep.pareto.maximize]
    unknown = [
        name
        for name in names
        if name not in row and name not in settings and name.partition(".")[0] not in VARYING
    ]
    _raise_for(unknown, {key for key, value in row.items() if isinstance(value, int | float)})


def _raise_for(unknown: Sequence[str], known: Collection[str]) -> None:
    if unknown:
        name, listed = unknown[0], sorted(known)
        hint = suggestion(name, listed) or f" (known: {listing(listed, 60)})"
        raise KeyFaults([("pareto", f"no prediction has {name!r}{hint}")])


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def columns(table: Sequence[Row]) -> list[str]:
    """The union of the rows' keys, in order of first appearance; `pareto` stands last."""
    found = dict.fromkeys(key for row in table for key in row)
    found.pop("pareto", None)
    return [*found, "pareto"]


def write_csv(table: Sequence[Row], path: Path) -> None:
    """Numbers in the shortest form that reads back to the same float; missing values are empty."""
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    names = columns(table)
    writer.writerow(names)
    for row in table:
        writer.writerow(["" if row.get(name) is None else _text(row[name]) for name in names])
    replace(path, text.getvalue().encode("utf-8"))


def _text(value: Any) -> str:
    return (
        repr(value)
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def write_parquet(table: Sequence[Row], path: Path) -> None:
    """The same table as Parquet; needs the extra `parquet`. Columns of mixed types are text."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise KeyFaults([("--parquet", "needs pyarrow: pip install 'clustersim[parquet]'")]) from None
    data = {name: _uniform([row.get(name) for row in table]) for name in columns(table)}
    partial = path.with_name(path.name + ".partial")
    pq.write_table(pa.table(data), partial, compression="zstd")
    os.replace(partial, path)


def _uniform(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]


def replace(path: Path, content: bytes) -> None:
    """Write a file so that it is there entirely or as it was."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)
