"""The what-if as one HTML file: the log's refusals and each policy's losses over time, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.report import offline
from harness.report.html_parts import esc, name, table
from harness.report.text import clean, count, millis, percent
from harness.shadow.figures import BINS, Figures, Tried, per_bin
from harness.shadow.find import Found
from harness.shadow.traffic import Traffic
from harness.shadow.view import rule_text

MOST_ROWS = 500


def page(traffic: Traffic, found: Sequence[Tried], searched: Sequence[Found], title: str, serving: str) -> str:
    """The whole file. title and serving are plain text."""
    sections = [
        f'<section id="time" aria-labelledby="time-h"><h2 id="time-h">Over time</h2>{_CHARTS}</section>',
        f'<section id="tenants" aria-labelledby="tenants-h"><h2 id="tenants-h">Every tenant</h2>'
        f"{_table(traffic, found)}</section>",
        f'<section id="workers" aria-labelledby="workers-h"><h2 id="workers-h">Workers</h2>{_searched(searched)}'
        "</section>"
        if searched
        else "",
    ]
    lead = f"{count(len(traffic))} recorded calls, played against {len(found)} policies in virtual time; {serving}."
    note = (
        "Nothing was sent. The calls are those of the log as they came: what callers would have done otherwise is not "
        "in it."
    )
    header = f"<header><h1>{esc(title)}</h1><p class=lead>{esc(lead, 600)}</p><p class=about>{esc(note)}</p></header>"
    inside = f"{header}<main>{''.join(sections)}</main>"
    return offline.document(title, inside, _data(traffic, found), (*offline.CHARTS, "shadow.js"))


_CHARTS = (
    '<div class="charts" id="charts"></div><p class="sr" role="status" aria-live="polite" id="readout"></p>'
    "<noscript><p>The charts need JavaScript; every number of the table stands without it.</p></noscript>"
)


def _data(traffic: Traffic, found: Sequence[Tried]) -> dict[str, Any]:
    width_s = traffic.duration_ns / BINS / 1e9
    lost = [{"name": clean(f"{one.policy.text} x{one.workers}", 60), "values": one.refused_per_bin} for one in found]
    if traffic.with_status:
        lost.insert(0, {"name": "refused in the log", "values": per_bin(traffic, traffic.refused)})
    return {
        "starts": [round(place * width_s, 6) for place in range(BINS)],
        "end": round(BINS * width_s, 6),
        "charts": [
            {"title": "Lost calls", "unit": "calls", "lines": lost},
            {
                "title": "Mean queue wait",
                "unit": "ms",
                "lines": [
                    {"name": clean(f"{one.policy.text} x{one.workers}", 60), "values": one.wait_ms_per_bin}
                    for one in found
                ],
            },
            {"title": "Calls", "unit": "calls", "lines": [{"name": "due", "values": per_bin(traffic)}]},
        ],
    }


def _table(traffic: Traffic, found: Sequence[Tried]) -> str:
    patient = any(one.total.abandoned for one in found)
    own = ("refused", *(("abandoned",) if patient else ()), "delayed", "mean wait, ms", "p95 wait, ms")
    groups = "".join(
        f'<th colspan="{len(own)}" class="n">{esc(f"{one.policy.text} x{one.workers}", 80)}</th>' for one in found
    )
    titles = "".join(f'<th class="n">{title}</th>' for _ in found for title in own)
    head = (
        f'<tr><th></th><th></th><th class="n">the log</th>{groups}</tr>'
        f'<tr><th>tenant</th><th class="n">calls</th><th class="n">refused</th>{titles}</tr>'
    )
    refused = traffic.counts(traffic.refused).tolist()
    rows = []
    for place, tenant in enumerate(traffic.tenants[:MOST_ROWS]):
        calls = found[0].figures[place].calls
        logged = _share(refused[place], calls) if traffic.with_status else "not logged"
        rows.append(_row(name(tenant), calls, logged, [one.figures[place] for one in found], patient))
    logged = _share(sum(refused), len(traffic)) if traffic.with_status else "not logged"
    rows.append(_row("<b>all</b>", len(traffic), logged, [one.total for one in found], patient))
    more = len(traffic.tenants) - MOST_ROWS
    note = f"<p class=note>and {more:,} tenants more</p>" if more > 0 else ""
    return table(head, rows, "Tenants by policies") + note


def _row(tenant: str, calls: int, logged: str, figures: Sequence[Figures], patient: bool) -> str:
    values = [count(calls), logged]
    for one in figures:
        values += [_share(n, one.calls) for n in (one.refused, *((one.abandoned,) if patient else ()), one.delayed)]
        values += [millis(None if ns is None else ns / 1e6) for ns in (one.mean_wait_ns, one.p95_wait_ns)]
    cells = "".join(f'<td class="n">{esc(value)}</td>' for value in values)
    return f"<tr><td>{tenant}</td>{cells}</tr>"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({percent(part / whole)})" if part else "0"


def _searched(searched: Sequence[Found]) -> str:
    parts = []
    for one in searched:
        said = "no number holds" if one.workers is None else f"{one.workers:,} workers"
        parts.append(
            f"<h3>{esc(one.policy.text, 80)}: {said}</h3><p>Unmoved: {esc(rule_text(one), 600)}.</p>"
            f"<p class=note>Tried: {esc(', '.join(f'{p.workers:,} {_word(p.unmoved)}' for p in one.points), 4000)}.</p>"
        )
    return "".join(parts)


def _word(unmoved: bool) -> str:
    return "unmoved" if unmoved else "moved"
