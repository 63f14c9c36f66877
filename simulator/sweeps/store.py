"""Where the results of a sweep are kept: one SQLite file, which a kill at any instant leaves whole.

Write-ahead logging makes each result a transaction of its own: it is there entirely or not at all.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    status TEXT NOT NULL,
    answer TEXT NOT NULL
) WITHOUT ROWID
"""

DONE, INVALID, FAILED = "done", "invalid", "failed"
"""done: there is a prediction (whether or not it fits); invalid: the design cannot run; failed: an error of ours."""


@dataclass(frozen=True)
class Outcome:
    """What became of a point. `answer` is the prediction's object, or {"error": …}."""

    status: str
    answer: Mapping[str, Any]


class Store:
    """Results by the key of their point; open it in one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(SCHEMA)

    def keys(self) -> set[str]:
        """Points that are done; those that failed by an error of ours are tried again."""
        rows = self._connection.execute("SELECT key FROM results WHERE status != ?", (FAILED,))
        return {key for (key,) in rows}

    def add(self, rows: Iterable[tuple[str, Mapping[str, Any], Outcome]]) -> None:
        """(key, settings, outcome) rows, all of them or none."""
        values = [
            (
                key,
                json.dumps(settings, sort_keys=True),
                outcome.status,
                json.dumps(outcome.answer, sort_keys=True),
            )
            for key, settings, outcome in rows
        ]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", values)
        self._connection.execute("COMMIT")

    def outcomes(self) -> dict[str, Outcome]:
        rows = self._connection.execute("SELECT key, status, answer FROM results")
        return {key: Outcome(status, json.loads(answer)) for key, status, answer in rows}

    def done(self) -> Outcome | None:
        """One that is a prediction, None if there is none yet."""
        row = self._connection.execute(
            "SELECT answer FROM results WHERE status = ? LIMIT 1", (DONE,)
        ).fetchone()
        return None if row is None else Outcome(DONE, json.loads(row[0]))

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT COUNT(*) FROM results").fetchone()
        return int(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
