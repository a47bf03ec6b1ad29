"""The tables of the HTML report: who was hurt, every tenant and phase, the witnesses, what ran where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.report import columns
from harness.report.html_parts import cells, chip, esc, name, table
from harness.report.summary import WHOLE, Row, Summary, most_hurt_first
from harness.report.terminal import row_name
from harness.report.text import MISSING, clean, count, percent, seconds
from harness.report.traffic import Traffic

_MOST_AT_A_GLANCE = 12
_MOST_PROFILE_TENANTS = 200
_MOST_PROFILE_CHARACTERS = 60_000
_WITNESS_KEYS = ("call", "attempt", "tenant", "round", "due_ns", "sent_ns", "done_ns", "queue_wait_ns", "outcome")


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


def witness_anchors(verdicts: Sequence[Verdict], rows: Mapping[str, Any]) -> list[dict[str, str]]:
    """For each verdict: witness -> the id of its row in the page."""
    return [
        {id_: f"w{place}-{number}" for number, id_ in enumerate(verdict.witnesses) if id_ in rows}
        for place, verdict in enumerate(verdicts)
    ]


def witness_section(
    verdicts: Sequence[Verdict], rows: Mapping[str, list[dict[str, Any]]], anchors: Sequence[Mapping[str, str]]
) -> str:
    """The ledger rows of all witnesses, verdict by verdict."""
    parts = []
    head = cells(["call", "tenant", "round", "due", "sent", "done", "queued ms", "outcome", "more"], "th")
    for verdict, ids in zip(verdicts, anchors, strict=True):
        if not ids:
            continue
        body = [_witness_row(row, at if i == 0 else "") for id_, at in ids.items() for i, row in enumerate(rows[id_])]
        title = f"<h3>{chip(verdict.word)} <code>{esc(verdict.check, 80)}</code></h3>"
        parts.append(title + table(f"<tr>{head}</tr>", body, f"Witnesses of {verdict.check}", "ledger"))
    return "".join(parts)


def _witness_row(row: Mapping[str, Any], anchor: str) -> str:
    attempt = row.get("attempt", 1)
    call = f"{row.get('call')}.{attempt}" if isinstance(attempt, int) and attempt > 1 else str(row.get("call"))
    wait = row.get("queue_wait_ns")
    more = ", ".join(f"{key} {value}" for key, value in row.items() if key not in _WITNESS_KEYS)
    instants = "".join(f'<td class="n">{_instant(row.get(key))}</td>' for key in ("due_ns", "sent_ns", "done_ns"))
    waited = f"{wait / 1e6:,.1f}" if isinstance(wait, int) else MISSING
    identity = f' id="{anchor}" tabindex="-1"' if anchor else ""
    return (
        f"<tr{identity}><td><code>{esc(call, 60)}</code></td><td>{name(row.get('tenant', MISSING))}</td>"
        f'<td class="n">{esc(row.get("round", MISSING))}</td>{instants}<td class="n">{waited}</td>'
        f"<td>{esc(row.get('outcome', MISSING))}</td><td class=note>{esc(more)}</td></tr>"
    )


def _instant(at_ns: object) -> str:
    return f"{at_ns / 1e9:,.3f} s" if isinstance(at_ns, int) and at_ns >= 0 else MISSING


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


def facts(trial: Trial, summary: Summary) -> str:
    """What ran, where, with what: a list of terms."""
    m = trial.manifest
    target = m.get("target") or {}
    ended = m.get("ended") or {}
    pairs: list[tuple[str, object]] = [
        ("calls", f"{count(summary.calls)} of {count(len(trial.tenants))} tenants"),
        ("length", seconds(summary.frame.duration_ns)),
        ("driver", m.get("driver")),
        ("target", f"{target.get('kind', MISSING)} {target.get('url') or ''}"),
        ("defect", target.get("defect")),
        ("variant", m.get("variant")),
        ("seed", m.get("seed")),
        ("time scale", m.get("time_scale")),
        ("clock domain", m.get("clock_domain")),
        ("ended", f"{ended.get('reason')} at {seconds(int(ended.get('at_ns', 0)))}" if ended else "never"),
        ("created", m.get("created")),
        ("trial", m.get("trial_id")),
        ("profile hash", str(m.get("profile_hash", MISSING))[:16]),
        *((f"{key} version", value) for key, value in sorted((m.get("versions") or {}).items())),
    ]
    return "".join(
        f"<div><dt>{esc(label)}</dt><dd>{esc(value)}</dd></div>" for label, value in pairs if value not in (None, "")
    )


def profile_text(profile: Mapping[str, Any]) -> str:
    """The profile as YAML, escaped; a huge one is cut, and says so."""
    tenants = profile.get("tenants") or {}
    shown, cut = dict(profile), ""
    if len(tenants) > _MOST_PROFILE_TENANTS:
        shown["tenants"] = dict(list(tenants.items())[:_MOST_PROFILE_TENANTS])
        cut = f"\n# {len(tenants) - _MOST_PROFILE_TENANTS} tenants more in manifest.json"
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
    if len(text) > _MOST_PROFILE_CHARACTERS:
        text, cut = text[:_MOST_PROFILE_CHARACTERS], "\n# cut here; the whole of it is in manifest.json"
    return "\n".join(esc(_indented(line), 2_000) for line in (text.rstrip() + cut).split("\n"))


def _indented(line: str) -> str:
    return clean(line, 2_000)
