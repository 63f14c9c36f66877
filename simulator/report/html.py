"""One prediction as a page: a single HTML file that needs nothing else, for mailing and archiving.

Equal predictions give equal bytes but for the time the simulation took. Every text from a description is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from simulator.report import quantities as write
from simulator.report import summary
from simulator.report.colours import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.results.prediction import Prediction

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:66rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.1rem;margin-top:2rem}p.plan{color:#555;margin-top:.2rem}
table{border-collapse:collapse}td,th{padding:.15rem .9rem .15rem 0;text-align:left;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}th{font-weight:600;color:#555}
.value{font-weight:600}.remark{color:#666}.bad{color:#b00020;font-weight:600}.warning{color:#8a5a00}
svg{max-width:100%;height:auto}code{background:#f3f3f3;padding:.1rem .3rem}
"""

BAR = 360.0
"""Pixels of the longest bar."""


def html_report(prediction: Prediction) -> str:
    """The page."""
    title = escape(summary.title(prediction))
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="plan">{escape(summary.plan_line(prediction))}</p>',
        _headline(prediction),
        f"<h2>Where the time goes</h2><p>{escape(summary.critical_name(prediction))}, the busiest.</p>",
        _breakdown(prediction),
        "<h2>Timeline</h2>",
        svg(prediction.plot()),
        "<h2>Memory</h2>",
        _memory(prediction),
        "<h2>Resources</h2>",
        _rows(
            [
                ("in use", summary.utilization_line(prediction)),
                ("critical path", summary.critical_line(prediction)),
                ("limited by", summary.limits_line(prediction)),
            ]
        ),
        "<h2>Where the numbers come from</h2>",
        _origins(prediction),
        "<h2>Plan</h2>",
        _rows((key, str(value)) for key, value in prediction.meta["plan"].items() if value is not None),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def svg(figure: Figure) -> str:
    """The figure as inline SVG: no date, no random ids, text as text."""
    import matplotlib as mpl

    buffer = StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": "clustersim", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _headline(prediction: Prediction) -> str:
    return _table(
        [_cell(what), _cell(value, "value"), _cell(remark, "remark")]
        for what, value, remark in summary.headline(prediction)
    )


def _breakdown(prediction: Prediction) -> str:
    found = summary.shares(prediction)
    longest = max((part.share for part in found), default=1.0)
    rows = []
    for part in found:
        width = max(1.0, BAR * part.share / longest)
        rectangle = f'<rect width="{width:.1f}" height="14" fill="{COLOURS[part.kind]}"/>'
        bar = f'<svg width="{BAR:g}" height="14">{rectangle}</svg>'
        seconds, share = write.seconds(part.seconds), write.percent(part.share)
        rows.append([_cell(part.kind), _cell(seconds, "number"), _cell(share, "number"), f"<td>{bar}</td>"])
    return _table(rows)


def _memory(prediction: Prediction) -> str:
    kinds = summary.memory_kinds(prediction)
    verdict = (
        f'<p class="{"" if prediction.memory.fits else "bad"}">{escape(summary.memory_line(prediction))}</p>'
    )
    rows = [[_cell(text, "number", "th") for text in ("stage", "peak GiB", *kinds)]]
    for stage in prediction.memory.by_stage():
        amounts = (stage.peak_bytes, *(stage.by_kind.get(kind, 0.0) for kind in kinds))
        rows.append(
            [_cell(str(stage.stage), "number"), *(_cell(f"{a / 2**30:.1f}", "number") for a in amounts)]
        )
    parts = [verdict, _table(rows)]
    if prediction.remedies:
        parts.append("<p>What would fit (tried, fastest first):</p>")
        parts.append(
            _table(
                [
                    f"<td><code>{escape(one.command)}</code></td>",
                    _cell(write.seconds(one.step_time_s), "number"),
                ]
                for one in prediction.remedies
            )
        )
    return "\n".join(parts)


def _origins(prediction: Prediction) -> str:
    warnings = [
        f'<p class="warning">{escape(text)}</p>'
        for text in [*prediction.warnings, *summary.borrowed(prediction)]
    ]
    rows = [
        [
            _cell(one.part),
            _cell(one.name, "value"),
            f"<td>{'<br>'.join(escape(text) for text in one.sources)}</td>",
        ]
        for one in prediction.origins
    ]
    return "\n".join([*warnings, _table(rows)])


def _rows(pairs: Iterable[tuple[str, str]]) -> str:
    return _table([_cell(key), _cell(value)] for key, value in pairs)


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows) + "</table>"


def _cell(text: str, style: str = "", tag: str = "td") -> str:
    opening = f'{tag} class="{style}"' if style else tag
    return f"<{opening}>{escape(text)}</{tag}>"
