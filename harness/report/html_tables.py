"""The tables of the HTML report: who was hurt, every tenant and phase, the account of a recording."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report import columns
from harness.report.html_parts import cells, esc, name, table
from harness.report.summary import WHOLE, Row, Summary, most_hurt_first
from harness.report.terminal import row_name
from harness.report.text import MISSING, count, percent
from harness.report.traffic import Traffic

_MOST_AT_A_GLANCE = 12


def glance(summary: Summary) -> str:
    """Served share of each tenant in calm and in burst: the answer to "who was hurt". Empty without both phases."""
    pairs = most_hurt_first(summary)
    if not pairs:
        return ""
    shown = pairs[:_MOST_AT_A_GLANCE]
    head = (
        "<tr>"
        + cells(["tenant", "", "served in calm", "", "served in burst", "", "refused", "gave up"], "th")
        + "</tr>"
    )
    more = "" if len(shown) == len(pairs) else f"<p class=note>{len(pairs) - len(shown)} more in the table below.</p>"
    return table(head, [_glance_row(calm, burst) for calm, burst in shown], "Who was hurt", "glance") + more


def _glance_row(calm: Row, burst: Row) -> str:
    role = "ordinary" if calm.ordinary else ""
    return (
        f'<tr><th scope="row">{name(row_name(calm))}</th><td class="role">{role}</td>'
        + "".join(
            f'<td class="n">{percent(row.served_share)}</td><td>{share_bar(row.served_share, row.ordinary)}</td>'
            for row in (calm, burst)
        )
        + f'<td class="n">{count(burst.refused)}</td><td class="n">{count(burst.abandoned)}</td></tr>'
    )


def share_bar(share: float | None, ordinary: bool, width: int = 110) -> str:
    """A share as a filled bar. Decorative: the number stands beside it."""
    filled = round((share or 0.0) * width, 1)
    return (
        f'<svg class="share{" ordinary" if ordinary else ""}" viewBox="0 0 {width} 10" width="{width}" height="10" '
        f'aria-hidden="true"><rect class="track" width="{width}" height="10" rx="2"/>'
        f'<rect class="fill" width="{filled}" height="10" rx="2"/></svg>'
    )


def tenant_table(summary: Summary) -> str:
    """A row a tenant and phase."""
    shown = [*(c for c in columns.COUNTS if c.wanted(summary.rows)), *columns.TIMES]
    body: list[str] = []
    for rows in _by_tenant(summary.rows):
        for place, row in enumerate(rows):
            first = f'<th scope="rowgroup" rowspan="{len(rows)}">{name(row_name(row))}</th>' if place == 0 else ""
            values = "".join(f'<td class="n">{_number(column.cell(row))}</td>' for column in shown)
            kind = f"{'whole' if row.phase == WHOLE else ''} {'first' if place == 0 else ''}".strip()
            body.append(f'<tr class="{kind}">{first}<th scope="row">{esc(row.phase)}</th>{values}</tr>')
    return table(_two_line_head(shown), body, "Every tenant and phase", "tenants")


def _number(text: str) -> str:
    return f'<span class="nil">{text}</span>' if text in ("0", MISSING) else esc(text)


def _by_tenant(rows: Sequence[Row]) -> list[list[Row]]:
    grouped: list[list[Row]] = [[]]
    for row in rows:
        grouped[-1].append(row)
        if row.phase == WHOLE:
            grouped.append([])
    return grouped[:-1]


def _two_line_head(shown: Sequence[columns.Column]) -> str:
    upper, lower = ['<tr><th rowspan="2">tenant</th><th rowspan="2">phase</th>'], ["<tr>"]
    place = 0
    while place < len(shown):
        column = shown[place]
        if not column.group:
            upper.append(f'<th rowspan="2" class="n" title="{esc(column.about)}">{esc(column.title)}</th>')
            place += 1
            continue
        members = [c for c in shown[place:] if c.group == column.group]
        unit = esc(column.group) + (" <small>ms</small>" if column in columns.TIMES else "")
        upper.append(f'<th colspan="{len(members)}" class="group">{unit}</th>')
        lower += [f'<th class="n" title="{esc(c.about)}">{esc(c.title)}</th>' for c in members]
        place += len(members)
    return "".join([*upper, "</tr>", *lower, "</tr>"])


def traffic_section(traffic: Traffic | None) -> str:
    """What became of every line of the recording, and the first broken ones. Empty without a recording."""
    if traffic is None:
        return ""
    if traffic.fault:
        return f"<p>{esc(traffic.fault)}</p>"
    steps = "".join(f"<div><dt>{esc(what)}</dt><dd>{count(number)}</dd></div>" for what, number in traffic.steps)
    reasons = ", ".join(f"{count(number)} {reason}" for reason, number in traffic.reasons)
    said = f"<p>Broken lines: {esc(reasons)}. The first of them:</p>" if reasons else ""
    samples = "".join(f"<li><code><bdi>{esc(sample, 800)}</bdi></code></li>" for sample in traffic.samples)
    return f"<dl>{steps}</dl>{said}" + (f"<ul>{samples}</ul>" if samples else "")
