"""`clustersim validate`: predicted against measured, on the data that the package ships."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.validation.scores import Refusal, Row


def command(
    suite: Annotated[
        str, typer.Argument(help="kernels, collectives, steps, memory, minicluster, or one source.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    worst: Annotated[int, typer.Option(help="How many of the worst rows to show per source.")] = 3,
    plot: Annotated[Path | None, typer.Option(help="Write a scatter plot (SVG, PNG or PDF) here.")] = None,
    intervals: Annotated[
        Path | None,
        typer.Option(help="steps, memory: write the interval of predictions (a YAML of the catalogue) here."),
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="minicluster: a few minutes instead of the full suite.")
    ] = False,
) -> None:
    """Compare predictions with measurements: mean absolute error, bias, 90th percentile, regret, worst rows."""
    if suite == "minicluster":
        from simulator.validation.minicluster.report import validate_minicluster

        raise typer.Exit(validate_minicluster(quick=quick, as_json=as_json))
    rows, refused = judged(suite)
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row)
    if plot is not None:
        from simulator.report.scatter import scatter_figure

        scatter_figure(by_source).savefig(plot)
    if intervals is not None:
        write_intervals(suite, by_source, intervals)
    if as_json:
        typer.echo(_json(by_source))
    else:
        _print(by_source, refused, worst)


def judged(suite: str) -> tuple[list[Row], list[Refusal]]:
    """Rows of a suite, or of one source of it. Raises DescriptionError for an unknown name."""
    from simulator.description.faults import DescriptionError, Fault, suggestion
    from simulator.validation.scores import Row
    from simulator.validation.suites import sources_of, suites

    known = suites()
    if suite in known:
        judgement = known[suite](None)
    elif (kind := next((name for name in known if suite in sources_of(name)), None)) is not None:
        judgement = known[kind]([suite])
    else:
        names = [*known, "minicluster", *(source for name in known for source in sources_of(name))]
        hint = suggestion(suite, names) or f" (known: {', '.join(names)})"
        raise DescriptionError(
            [Fault("SUITE", 0, 0, "suite", f"no suite or source is called {suite!r}{hint}")]
        )
    rows: list[Row] = []
    refused: list[Refusal] = []
    for item in _with_progress(judgement):
        (rows if isinstance(item, Row) else refused).append(item)
    return rows, refused


def _with_progress(judgement: Any) -> Any:
    import sys

    if not sys.stderr.isatty():
        yield from judgement
        return
    from rich.progress import Progress

    with Progress(transient=True) as progress:
        task = progress.add_task("judging", total=None)
        for item in judgement:
            progress.update(task, advance=1, description=f"{item.source}")
            yield item


def _json(by_source: dict[str, list[Row]]) -> str:
    import json
    from dataclasses import asdict

    from simulator.validation.scores import score

    scores = {source: asdict(score(rows)) for source, rows in by_source.items()}
    mean = sum(s["mape"] for s in scores.values()) / len(scores) if scores else None
    return json.dumps({"sources": scores, "mape": mean}, indent=2)


MIXTURES = "_moe"
"""Sources of mixtures of experts end so; they are harder to predict and have an interval of their own."""


def write_intervals(suite: str, by_source: dict[str, list[Row]], path: Path) -> None:
    """Steps: two catalogue files, `path` for dense models, and beside it one for mixtures of experts. Memory: one."""
    if suite == "memory":
        path.write_text(
            _interval_yaml(by_source, suite, 1.0, "assumed: what is allocated is the software's"),
            encoding="utf-8",
        )
        return
    dense = {name: rows for name, rows in by_source.items() if not name.endswith(MIXTURES)}
    mixtures = {name: rows for name, rows in by_source.items() if name.endswith(MIXTURES)}
    for found, target in ((dense, path), (mixtures, path.with_stem(f"{path.stem}-mixtures"))):
        if len(found) > 1:
            origin = "assumed: half as wide again where the calibration of another GPU stands in"
            target.write_text(_interval_yaml(found, suite, 1.5, origin), encoding="utf-8")


def _interval_yaml(by_source: dict[str, list[Row]], suite: str, transferred: float, origin: str) -> str:
    from simulator.validation.intervals import NOMINAL, intervals

    found = intervals(by_source)
    lines = [
        "kind: interval",
        f"nominal: {NOMINAL}",
        f"low: {found.low:.4f}",
        f"high: {found.high:.4f}",
        f"transferred: {transferred}",
        f"coverage: {found.mean:.3f}",
        f"rows: {found.rows}",
        "sources:",
        f'  low: "clustersim validate {suite} --intervals"',
        f'  transferred: "{origin}"',
        "# coverage with each source left out:",
        *(f"#   {name}: {part:.2f}" for name, part in found.by_source.items()),
    ]
    return "\n".join(lines) + "\n"


def _print(by_source: dict[str, list[Row]], refused: list[Refusal], worst: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from simulator.validation.scores import ordered_pairs, score

    console = Console(width=None)
    table = Table(title="predicted against measured", title_justify="left")
    for name in ("source", "rows", "mean |error|", "bias", "p90", "regret", "order right"):
        table.add_column(name, justify="left" if name == "source" else "right")
    for source, rows in by_source.items():
        s = score(rows)
        right, pairs = ordered_pairs(rows)
        table.add_row(
            source,
            str(s.rows),
            f"{s.mape:.1%}",
            f"{s.bias:+.1%}",
            f"{s.p90:.1%}",
            "" if s.regret is None else f"{s.regret:.1%}",
            f"{right}/{pairs}" if pairs else "",
        )
    console.print(table)
    for source, rows in by_source.items():
        console.print(f"\nworst of {source}:")
        for row in sorted(rows, key=lambda r: -abs(r.error))[:worst]:
            parts = ", ".join(f"{k} {v:.0%}" for k, v in sorted(row.parts.items(), key=lambda p: -p[1])[:5])
            console.print(
                f"  {row.error:+7.1%}  {row.name}: measured {row.measured:.4g} {row.unit}, "
                f"predicted {row.predicted:.4g}" + (f" ({parts})" if parts else ""),
                highlight=False,
            )
    if refused:
        console.print(f"\n{len(refused)} rows could not be predicted:")
        for reason, count in _reasons(refused):
            console.print(f"  {count} x {reason}", highlight=False)


def _reasons(refused: list[Refusal]) -> list[tuple[str, int]]:
    from collections import Counter

    return Counter(f"{item.source}: {item.reason[-160:]}" for item in refused).most_common(8)
