"""The accuracy page: one table per source, peers beside, and the reason for every row that is off by over 10 %.

Written by `python -m simulator.validation.page docs/accuracy.md`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from simulator.validation import memory, steps
from simulator.validation.composed import tables
from simulator.validation.intervals import intervals
from simulator.validation.scores import Refusal, Row, ordered_pairs, score
from simulator.validation.step_data import StepRow, step_rows

MISS = 0.10
"""Rows further off than this need a reason."""


def page() -> str:
    """The whole page as Markdown."""
    rows, refused = _split(steps.judge(None))
    peaks, _ = _split(memory.judge(None))
    by_source = _by_source(rows)
    return "\n".join(
        [
            "# Accuracy on published training steps",
            "",
            "Predicted against measured step time on runs that other people published. Nothing was fitted on",
            "them but the software figures in `hardware/calibrations/software/`, each with the rows it was taken from;",
            "those rows are left out below. Reproduce with `clustersim validate steps`; this page is written by",
            "`python -m simulator.validation.page docs/accuracy.md`.",
            "",
            *_summary(by_source),
            "",
            *_sums(by_source),
            *_peers(by_source),
            "",
            *_first_sight(by_source),
            "",
            *_coverage(by_source),
            "",
            "## Peak memory",
            "",
            *_summary(_by_source(peaks)),
            "",
            *_peak_interval(_by_source(peaks)),
            "",
            "## Rows off by more than 10 %",
            "",
            *_misses(by_source),
            *_refusals(refused),
        ]
    )


def _split(judged: Iterable[Row | Refusal]) -> tuple[list[Row], list[Refusal]]:
    rows: list[Row] = []
    refused: list[Refusal] = []
    for item in judged:
        rows.append(item) if isinstance(item, Row) else refused.append(item)
    return rows, refused


def _by_source(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row)
    return by_source


def _summary(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    lines = [
        "| source | rows | mean absolute error | bias | 90th percentile | regret | pairs in order |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for source, rows in by_source.items():
        s = score(rows)
        right, pairs = ordered_pairs(rows)
        regret = "" if s.regret is None else f"{s.regret:.1%}"
        order = f"{right} of {pairs}" if pairs else ""
        lines.append(
            f"| {source} | {s.rows} | {s.mape:.1%} | {s.bias:+.1%} | {s.p90:.1%} | {regret} | {order} |"
        )
    mean = sum(score(rows).mape for rows in by_source.values()) / max(1, len(by_source))
    return [*lines, "", f"Mean over sources: {mean:.1%}."]


def _sums(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    """Tables that no runs were measured for, and their sources' scores without them."""
    lines: list[str] = []
    for name, table in tables(step_rows()).items():
        source, written = table.rows[0].source, {row.row for row in table.rows}
        judged = by_source.get(source, [])
        parts = [
            [row for row in judged if (row.name.split()[0] in written) is told] for told in (True, False)
        ]
        if not table.composed or not all(parts):
            continue
        (summed, order), (measured, theirs) = (
            (f"{score(rows).mape:.1%}", "{} of {}".format(*ordered_pairs(rows))) for rows in parts
        )
        lines.append(
            f"| {source} | {name} | {table.layouts} | {table.deviation:.0e} | {len(parts[0])}: {summed}, {order} "
            f"| {len(parts[1])}: {measured}, {theirs} |"
        )
    if not lines:
        return []
    return [
        "## Rows that are no measurements",
        "",
        "All layouts of these tables lie on a straight line over their batch sizes, to the last digit printed: sums of",
        "profiled parts, not runs. They are judged above as their sources offer them, and apart here.",
        "",
        "| source | table | layouts with three batch sizes | furthest off a line | judged rows: error, pairs in order "
        "| the source's other rows |",
        "| --- | --- | ---: | ---: | --- | --- |",
        *lines,
        "",
    ]


def _peers(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    """Calculon, SimuMax and the one-line formula on the same rows."""
    text = (files("simulator.validation") / "data" / "steps" / "peers.csv").read_text()
    theirs = {row["row"]: row for row in csv.DictReader(text.splitlines())}
    lines = [
        "## Beside other tools, on the same rows",
        "",
        "Mean absolute error. The formula is 0.575 of the peak on hardware FLOPs with the ideal bubble.",
        "",
        "| source | clustersim | Calculon | SimuMax | formula |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    data = {row.row: row for row in step_rows()}
    for source, rows in by_source.items():
        pairs = [(row, theirs[key]) for row in rows if (key := row.name.split()[0]) in theirs]
        if not pairs:
            continue
        ours = score([row for row, _ in pairs]).mape
        columns = []
        for column in ("calculon_s", "simumax_s"):
            errors = [abs(float(peer[column]) / row.measured - 1) for row, peer in pairs if peer[column]]
            columns.append(f"{sum(errors) / len(errors):.1%}" if errors else "")
        formula = [abs(one_line_formula(data[row.name.split()[0]]) / row.measured - 1) for row, _ in pairs]
        lines.append(
            f"| {source} | {ours:.1%} | {columns[0]} | {columns[1]} | {sum(formula) / len(formula):.1%} |"
        )
    return lines


def _first_sight(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    """What was predicted of the sources added last, before anything was changed for them."""
    text = (files("simulator.validation") / "data" / "steps" / "first_sight.csv").read_text()
    lines = [
        "## At first sight",
        "",
        "How far predictions are off on runs that nothing was made for: these sources were added when the models were",
        "done, and predicted once before anything was changed. Since then their rows have been looked at, as all",
        "others have.",
        "",
        "| source | what | rows | first sight | bias | now |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for entry in csv.DictReader(text.splitlines()):
        rows = by_source.get(entry["source"])
        now = f"{score(rows).mape:.1%}" if rows else ""
        bias = f"{float(entry['bias']):+.1%}" if entry["bias"] else ""
        lines.append(
            f"| {entry['source']} | {entry['what']} | {entry['rows']} | {float(entry['mape']):.1%} | {bias} | {now} |"
        )
    return lines


def one_line_formula(row: StepRow, efficiency: float = 0.575, peak: float = 312e12) -> float:
    """Seconds of a step by hardware FLOPs over a constant rate, with the ideal pipeline bubble."""
    layers, hidden, sequence, batch = (
        row.number(k) for k in ("layers", "hidden", "sequence", "global_batch")
    )
    tokens, attention = batch * sequence, sequence / (6 * hidden)
    passes = 4 if row.recompute == "full" else 3
    extra = 24 * layers * hidden**2 * attention if row.recompute == "selective" else 0
    flops = tokens * (24 * layers * hidden**2 * (1 + attention) * passes + extra)
    flops += tokens * 6 * hidden * row.number("vocab")
    count = batch // (row.number("micro_batch") * row.number("dp", 1))
    bubble = (row.number("pp") - 1) / (count * row.number("vpp", 1))
    return flops / (efficiency * peak * row.number("gpus")) * (1 + bubble)


def _coverage(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    if len(by_source) < 2:
        return []
    by_source = {name: rows for name, rows in by_source.items() if not name.endswith("_moe")}
    found = intervals(by_source)
    return [
        "## Interval around a prediction",
        "",
        f"`step_time_low_s` and `step_time_high_s` are the predicted time times {found.low:.3f} and {found.high:.3f},",
        "for dense models (mixtures of experts have an interval of their own): the 5 % and 95 % quantiles of measured",
        "over predicted, every source weighing the same. With each source left out in turn, the interval of the others",
        f"holds {found.by_source['all']:.0%} of its rows, on average over rows:",
        "",
        "| source | rows inside |",
        "| --- | ---: |",
        *(f"| {name} | {part:.0%} |" for name, part in found.by_source.items()),
    ]


def _peak_interval(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    if len(by_source) < 2:
        return []
    found = intervals(by_source)
    return [
        "`memory.peak_low_bytes` and `memory.peak_high_bytes` are the predicted peak times "
        f"{found.low:.3f} and {found.high:.3f},",
        "found as the interval above; with each source left out it holds "
        f"{found.by_source['all']:.0%} of its rows, on average",
        "over rows.",
    ]


def _misses(by_source: Mapping[str, Sequence[Row]]) -> list[str]:
    lines: list[str] = []
    data = {row.row: row for row in step_rows()}
    for source, rows in by_source.items():
        missed = sorted((row for row in rows if abs(row.error) > MISS), key=lambda row: row.error)
        if not missed:
            continue
        lines += [f"### {source}: {len(missed)} of {len(rows)} rows", ""]
        lines += ["| row | error | mechanism |", "| --- | ---: | --- |"]
        for row in missed:
            lines.append(
                f"| {row.name} | {row.error:+.0%} | {mechanism(data[row.name.split()[0]], row.error)} |"
            )
        lines.append("")
    return lines


def mechanism(row: StepRow, error: float) -> str:
    """Why a row is off: the first entry of misses.yaml that fits it."""
    sign = "+" if error > 0 else "-"
    for entry in _known_misses():
        if entry["source"] != row.source or entry.get("sign", sign) != sign:
            continue
        if all(
            str(getattr(row, key)) in [str(v) for v in values]
            for key, values in entry.get("where", {}).items()
        ):
            return str(entry["mechanism"])
    return "not explained"


@lru_cache(maxsize=1)
def _known_misses() -> list[dict[str, Any]]:
    text = (files("simulator.validation") / "data" / "steps" / "misses.yaml").read_text()
    return list(yaml.safe_load(text)["misses"])


def _refusals(refused: Sequence[Refusal]) -> list[str]:
    if not refused:
        return []
    counts: dict[tuple[str, str], int] = {}
    for item in refused:
        reason = item.reason.split("[type=")[0][-140:].replace("|", "/")
        counts[item.source, reason] = counts.get((item.source, reason), 0) + 1
    lines = ["## Rows that cannot be expressed", "", "| source | rows | reason |", "| --- | ---: | --- |"]
    return [
        *lines,
        *(f"| {source} | {count} | {reason} |" for (source, reason), count in sorted(counts.items())),
    ]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page() + "\n", encoding="utf-8")
