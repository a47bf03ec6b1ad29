"""What was planned, and on what it ran: the profile, the target and what it lets be seen, versions, clocks, and how
late the harness itself was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from harness.checks.tiers import ADD, Tier, tiers_of
from harness.ledger.reader import Trial
from harness.ledger.stalls import stalls_of
from harness.report.html_parts import cells, esc, name, table
from harness.report.summary import WHOLE, Summary
from harness.report.terminal import row_name
from harness.report.text import MISSING, clean, count, millis, seconds

_MOST_PROFILE_TENANTS = 200
_MOST_PROFILE_CHARACTERS = 60_000
_MOST_WORKERS = 40
_SHOWN_TIERS = (Tier.ANSWERS, Tier.TYPED, Tier.DECISIONS, Tier.DEPENDENCIES, Tier.RUNS, Tier.LEFTOVERS)
_GIVES = {
    Tier.ANSWERS: "status and timing of each call",
    Tier.TYPED: "outcomes told apart, and how long calls waited",
    Tier.DECISIONS: "the service's own log, joined by attempt",
    Tier.DEPENDENCIES: "what reached the services behind it",
    Tier.RUNS: "agent runs: how they are opened and answered",
    Tier.LEFTOVERS: "what the service still holds at the end",
}


def plan_section(trial: Trial, summary: Summary) -> str:
    """Facts, the target's tiers, the machine, the plan, and the profile as YAML."""
    parts = [
        f"<dl class=facts>{_list(facts(trial, summary))}</dl>",
        "<h3>Clocks and lateness</h3>",
        f"<dl class=facts>{_list(_lateness(trial))}</dl>",
        _workers(trial.manifest.get("workers") or ()),
        _tiers(trial.manifest),
        _planned(trial, summary),
        f'<details><summary>Profile, as YAML</summary><pre tabindex="0">'
        f"{profile_text(trial.manifest['profile'])}</pre></details>",
    ]
    return "".join(parts)


def _list(pairs: Sequence[tuple[str, object]]) -> str:
    return "".join(
        f"<div><dt>{esc(label)}</dt><dd>{esc(value)}</dd></div>" for label, value in pairs if value not in (None, "")
    )


def facts(trial: Trial, summary: Summary) -> list[tuple[str, object]]:
    """What ran, where, with what."""
    m = trial.manifest
    target = m.get("target") or {}
    ended = m.get("ended") or {}
    return [
        ("calls", f"{count(summary.calls)} of {count(len(trial.tenants))} tenants"),
        ("length", seconds(summary.frame.duration_ns)),
        ("driver", m.get("driver")),
        ("target", f"{target.get('kind', MISSING)} {target.get('name') or ''} {target.get('url') or ''}"),
        ("defect", target.get("defect") or target.get("caller_defect")),
        ("variant", m.get("variant")),
        ("seed", m.get("seed")),
        ("time scale", m.get("time_scale")),
        ("ended", f"{ended.get('reason')} at {seconds(_ns(ended.get('at_ns')))}" if ended else "never"),
        ("created", m.get("created")),
        ("trial", m.get("trial_id")),
        ("profile hash", str(m.get("profile_hash", MISSING))[:16]),
        *((f"{key} version", value) for key, value in sorted((m.get("versions") or {}).items())),
    ]


def _ns(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


_DOMAINS = {
    "shared": "shared: callers and service on one clock",
    "separate": "separate: the service has a clock of its own",
    "virtual": "virtual: simulated time, no machine was late",
}


def _lateness(trial: Trial) -> list[tuple[str, object]]:
    m = trial.manifest
    domain = str(m.get("clock_domain"))
    ended = m.get("ended")
    lag = (ended or {}).get("stub_loop_lag") if isinstance(ended, dict) else None
    clock = m.get("clock") or {}
    error = _ns(clock.get("error_ns"))
    return [
        ("clock domain", _DOMAINS.get(domain, domain)),
        ("clock is good to", f"{millis(error / 1e6)} ms" if error else None),
        ("calls sent late", _sent_late(trial)),
        ("the stub's loop lag", _lag(lag) if isinstance(lag, dict) else None),
        ("the stub stood still", _stalls(trial)),
    ]


def _sent_late(trial: Trial) -> str | None:
    calls = trial.attempts
    sent = calls.sent_ns >= 0
    if not sent.any():
        return None
    late = np.maximum(0, calls.sent_ns - calls.start_ns)[sent] / 1e6
    p50, p99 = np.quantile(late, (0.5, 0.99)).tolist()
    return f"median {millis(p50)} ms, p99 {millis(p99)} ms, most {millis(float(late.max()))} ms"


def _lag(lag: Mapping[str, Any]) -> str:
    p50, p99, most = (millis(_ns(lag.get(f"{key}_ns")) / 1e6) for key in ("p50", "p99", "max"))
    return f"median {p50} ms, p99 {p99} ms, most {most} ms"


def _stalls(trial: Trial) -> str | None:
    if trial.manifest.get("driver") == "simulated":
        return None
    found = stalls_of(trial)
    within = found.to_ns > 0  # before the trial began nothing was in its way
    lengths = (found.to_ns - np.maximum(found.from_ns, 0))[within] / 1e6
    if not len(lengths):
        return "never, as far as it tells"
    total, longest = millis(float(lengths.sum())), millis(float(lengths.max()))
    return f"{count(len(lengths))} times, {total} ms in all, {longest} ms at most"


def _workers(workers: Sequence[Mapping[str, Any]]) -> str:
    if not workers:
        return ""
    rows = [
        f"<tr><td>{name(one.get('name'))}</td><td>{name(one.get('host'))}</td>"
        f'<td class="n">{count(_ns(one.get("calls")))}</td>'
        f'<td class="n">{millis(_ns(one.get("clock_error_ns")) / 1e6)}</td></tr>'
        for one in workers[:_MOST_WORKERS]
        if isinstance(one, Mapping)
    ]
    more = len(workers) - len(rows)
    note = f"<p class=note>{more} more in manifest.json.</p>" if more > 0 else ""
    head = "<tr><th>worker</th><th>host</th><th class=n>calls</th><th class=n>clock good to, ms</th></tr>"
    return "<h3>Workers</h3>" + table(head, rows, "Workers", "glance") + note


def _tiers(manifest: dict[str, Any]) -> str:
    """Of a target that was described: what it lets be seen, and what to add for the rest."""
    given = tiers_of(manifest)
    if given is None:
        return ""
    rows = []
    for tier in _SHOWN_TIERS:
        add = "" if tier in given or tier not in ADD else f"add {ADD[tier]}"
        rows.append(
            f"<tr><th scope=row>{tier.value}</th><td>{esc(_GIVES[tier])}</td>"
            f"<td>{'yes' if tier in given else 'no'}</td><td class=note>{esc(add)}</td></tr>"
        )
    head = f"<tr>{cells(['tier', 'gives', 'seen', 'how to see it'], 'th')}</tr>"
    return "<h3>What the target lets be seen</h3>" + table(head, rows, "Tiers of the target", "glance")


def _planned(trial: Trial, summary: Summary) -> str:
    """Original calls that the profile asks for, and all that became due: re-plans are the difference."""
    plan = trial.manifest.get("plan") or {}
    due = {(row.tenant, row.phase): row.due for row in summary.rows if row.kind == "tenant"}
    phases = [phase for phase, _, _ in summary.frame.phases]
    shown = [row for row in summary.whole() if row.kind == "tenant" and isinstance(plan.get(row.tenant), Mapping)]
    if not shown:
        return ""
    rows = []
    for row in shown:
        mine = plan[row.tenant]
        pairs = [(_ns(mine.get(phase)), due.get((row.tenant, phase), 0)) for phase in phases]
        pairs.append((sum(_ns(number) for number in mine.values()), due.get((row.tenant, WHOLE), 0)))
        figures = "".join(f'<td class="n">{count(asked)}</td><td class="n">{count(came)}</td>' for asked, came in pairs)
        rows.append(f"<tr><th scope=row>{name(row_name(row))}</th>{figures}</tr>")
    titles = [*phases, WHOLE]
    upper = "".join(f'<th colspan="2" class="group">{esc(title)}</th>' for title in titles)
    lower = "".join("<th class=n>planned</th><th class=n>due</th>" for _ in titles)
    head = f"<tr><th rowspan=2>tenant</th>{upper}</tr><tr>{lower}</tr>"
    note = "<p class=note>Planned: original calls of the profile. Due: with the re-plans that followed failures.</p>"
    return "<h3>Plan</h3>" + note + table(head, rows, "Planned and due", "glance")


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
