"""The report as one HTML file that opens offline: verdict first, then who got what, over time, and the witnesses.

Nothing is fetched (offline.py). Charts are drawn by uPlot (docs/decisions/0002-charts.md). Without
JavaScript everything but the charts is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.report import columns, offline
from harness.report.capacity import BulkLine, Capacity, capacity_of, lines_of, rows_beside
from harness.report.capacity_html import capacity_section, chart_lines
from harness.report.decision_log import Log, log_data, log_of
from harness.report.distributions import distributions_of
from harness.report.html_log import log_section
from harness.report.html_parts import chip, esc, verdict_card
from harness.report.html_plan import plan_section
from harness.report.html_shapes import distribution_section, rounds_section
from harness.report.html_tables import glance, tenant_table, traffic_section
from harness.report.html_witnesses import witness_anchors, witness_section
from harness.report.notes import named_in, not_observable, overall, title_of, worst_first
from harness.report.rounds import flows_of
from harness.report.series import Line, Series, series_of
from harness.report.stories import stories_of
from harness.report.summary import Summary, charted, summarise
from harness.report.text import clean, count
from harness.report.traffic import traffic_of

_ORDINARY_COLOURS = (0, 1, 2, 3)
_OTHER_COLOURS = (4, 5, 6, 7)
_NAV = (
    ("verdicts", "Verdicts"),
    ("hurt", "Who was hurt"),
    ("time", "Over time"),
    ("shapes", "Distributions"),
    ("rounds", "Re-plans"),
    ("tenants", "Tenants"),
    ("capacity", "Capacity"),
    ("witnesses", "Witnesses"),
    ("log", "Decisions"),
    ("traffic", "Recorded"),
    ("unseen", "Not seen"),
    ("trial", "What ran"),
)


def page(trial: Trial, verdicts: Sequence[Verdict], summary: Summary | None = None) -> str:
    """The whole file. Raises LedgerError if the manifest holds no profile."""
    summary = summary or summarise(trial, keep=named_in(trial, verdicts))
    ordered = worst_first(verdicts)
    witnesses = [id_ for verdict in ordered for id_ in verdict.witnesses]
    shown = charted(summary)
    series = series_of(trial, summary.frame, shown)
    colours = _colours(series.lines)
    capacity = capacity_of(trial)
    bulkheads = lines_of(trial, series) if capacity else ()
    spreads = distributions_of(trial, summary.frame, shown)
    log = log_of(trial, witnesses)
    stories = stories_of(trial, witnesses, log, *rows_beside(trial))
    anchors = witness_anchors(ordered, stories)
    cards = "".join(verdict_card(i, verdict, anchors[i]) for i, verdict in enumerate(ordered))
    sections = [
        _section("verdicts", "Verdicts", cards or "<p>Nothing was judged.</p>"),
        _section("hurt", "Who was hurt", glance(summary)),
        _section("time", "Over time", _charts(series)),
        _section("shapes", "Waits and latencies", distribution_section(spreads, colours)),
        _section("rounds", "Re-plan rounds", rounds_section(*flows_of(trial))),
        _section("tenants", "Every tenant and phase", tenant_table(summary) + _table_notes(summary)),
        _section("capacity", "Capacity layer", _capacity(capacity, series, summary)),
        _section("witnesses", "Witnesses", witness_section(ordered, stories, anchors)),
        _section("log", "Decision log", log_section(log)),
        _section("traffic", "Recorded traffic", traffic_section(traffic_of(trial))),
        _section("unseen", "Not observable", _list(not_observable(trial, summary.frame))),
        _section("trial", "What ran", plan_section(trial, summary)),
    ]
    data = chart_data(series, summary, bulkheads, log)
    return _document(trial, _header(trial, verdicts, summary), "".join(sections), data)


def _capacity(capacity: Capacity | None, series: Series, summary: Summary) -> str:
    phases = [(name, from_ns / 1e9, to_ns / 1e9) for name, from_ns, to_ns in summary.frame.phases]
    return capacity_section(capacity, series.end_s, phases)


def _section(anchor: str, title: str, body: str) -> str:
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-h"><h2 id="{anchor}-h">{title}</h2>{body}</section>'
        if body
        else ""
    )


def _header(trial: Trial, verdicts: Sequence[Verdict], summary: Summary) -> str:
    word, code, sentence = overall(verdicts)
    about = trial.manifest["profile"].get("about") or ""
    return (
        f'<header class="{word.value.lower()}"><p class="word">{chip(word)}</p><h1>{esc(title_of(trial.manifest))}</h1>'
        f'<p class="lead">{esc(sentence)} {count(summary.calls)} calls, exit code {code}.</p>'
        f'<p class="about">{esc(about, 600)}</p></header>'
    )


def _table_notes(summary: Summary) -> str:
    notes = [columns.absent(summary.rows), columns.COUNT_NOTE, columns.WAIT_NOTE, columns.THIN_NOTE]
    if summary.left_out:
        notes.append(f"{count(summary.left_out)} tenants with fewer calls share one row.")
    return "".join(f'<p class="note">{esc(note)}</p>' for note in notes if note)


def _charts(series: Series) -> str:
    legend = '<div class="legend" id="legend" role="group" aria-label="Tenants shown"></div>'
    return (
        f"<p class=note>Bins of {series.width_s:g} s. Each tenant's chart has a scale of its own; the gap between "
        "offered and served is what it lost. Below it: how many of its calls waited in the service's queue. Arrow keys "
        "move the cursor in a focused chart; drag to zoom, double click to zoom out.</p>"
        '<div class="multiples" id="multiples"></div>'
        f'{legend}<div class="charts" id="charts"></div>'
        '<p class="sr" role="status" aria-live="polite" id="readout"></p>'
        "<noscript><p>The charts need JavaScript; every number of this page stands without it.</p></noscript>"
    )


def _list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{esc(item)}</li>" for item in items) + "</ul>" if items else ""


def chart_data(
    series: Series, summary: Summary, bulkheads: Sequence[BulkLine] = (), log: Log | None = None
) -> dict[str, Any]:
    """What report.js draws. Names are made safe to show here; report.js only ever sets them as text."""
    colours = _colours(series.lines)
    return {
        "width_s": series.width_s,
        "starts": series.starts_s,
        "end": series.end_s,
        "phases": [
            {"name": phase, "from": from_ns / 1e9, "to": to_ns / 1e9} for phase, from_ns, to_ns in summary.frame.phases
        ],
        "lines": [
            {
                "name": clean(line.tenant, 60),
                "ordinary": line.ordinary,
                "colour": colours[i],
                "offered": line.offered_per_s,
                "served": line.served_per_s,
                "refused": line.refused_per_s,
                "abandoned": line.abandoned_per_s,
                "waiting": line.waiting,
                "wait": line.wait_ms,
                "replans": line.replan_share,
            }
            for i, line in enumerate(series.lines)
        ],
        "bulkheads": chart_lines(bulkheads),
        "log": log_data(log) if log is not None and log.total else None,
    }


def _colours(lines: Sequence[Line]) -> list[int]:
    """Cool colours for ordinary tenants and warm ones for the others, as far as they go."""
    free = {True: list(_ORDINARY_COLOURS), False: list(_OTHER_COLOURS)}
    chosen: list[int] = []
    for line in lines:
        pool = free[line.ordinary] or free[not line.ordinary] or [len(chosen) % 8]
        chosen.append(pool.pop(0))
    return chosen


def _document(trial: Trial, header: str, body: str, data: dict[str, Any]) -> str:
    links = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title in _NAV if f'<section id="{anchor}"' in body)
    inside = f'{header}<nav aria-label="Sections">{links}</nav><main>{body}</main>'
    return offline.document(title_of(trial.manifest), inside, data, (*offline.CHARTS, "report.js"))
