"""The capacity layer's part of the HTML report: tables, and what report.js draws of its bulkheads over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from harness.report import svg
from harness.report.capacity import MOST_BULKHEADS, BulkLine, Capacity, ClassRow
from harness.report.capacity_text import NOTE, most_at_once
from harness.report.columns import THIN_NOTE, time_cell
from harness.report.cost import Costs
from harness.report.html_parts import cells, esc, name, scroll, table
from harness.report.text import MISSING, clean, count, percent, seconds

_QUANTILES = ("p50", "p95", "p99")
_MOST_REFUSALS = 40


def capacity_section(
    capacity: Capacity | None, end_s: float = 0.0, phases: Sequence[tuple[str, float, float]] = ()
) -> str:
    """Tables and circuits of the capacity layer. Empty without one. end_s: when the charts end."""
    if capacity is None:
        return ""
    return "".join(
        (
            f"<h3>By traffic class</h3>{_classes(capacity.classes)}",
            f"<p class=note>{esc(NOTE)}</p><p class=note>{esc(THIN_NOTE)}</p>",
            f"<h3>In use against limits</h3>{_bulkheads(capacity)}",
            f"<h3>Refused, and why</h3>{_refusals(capacity)}",
            _cost(capacity.cost),
            f"<h3>Attempts and retries</h3>{_attempts(capacity)}",
            f"<h3>Circuits</h3>{_lanes(capacity, end_s, phases)}{_circuits(capacity)}",
            '<h3>Bulkheads over time</h3><p class=note>Most calls in use in each bin, against the limit; dotted: most '
            "waiting. Shaded: the dependency's circuit was open, or (lighter) half-open.</p>"
            '<div class="charts" id="bulkheads"></div>',
        )
    )  # fmt: skip


def _classes(classes: Sequence[ClassRow]) -> str:
    outcomes = list(dict.fromkeys(outcome for row in classes for outcome in row.outcomes))
    upper = ["runs", "steps", *(outcome.replace("_", " ") for outcome in outcomes)]
    head = '<th rowspan="2">class</th>' + "".join(f'<th rowspan="2" class="n">{esc(title)}</th>' for title in upper)
    head += "".join(
        f'<th colspan="3" class="group">{group} <small>ms</small></th>' for group in ("latency", "queue wait")
    )
    lower = "".join(f'<th class="n">{q}</th>' for _ in range(2) for q in _QUANTILES)
    body = []
    for row in classes:
        figures = [row.runs, row.steps, *(row.outcomes.get(outcome, 0) for outcome in outcomes)]
        times = [time_cell(times, q) for times in (row.latency, row.wait) for q in _QUANTILES]
        values = "".join(f'<td class="n">{_figure(text)}</td>' for text in (*map(count, figures), *times))
        body.append(f'<tr><th scope="row">{esc(row.traffic_class)}</th>{values}</tr>')
    return table(f"<tr>{head}</tr><tr>{lower}</tr>", body, "Traffic classes", "glance")


def _figure(text: str) -> str:
    return f'<span class="nil">{text}</span>' if text in ("0", MISSING) else esc(text)


def _bulkheads(capacity: Capacity) -> str:
    heads = ["bulkhead", "limit", "most in use", "", "most waiting", "calls", "failed", "writes committed"]
    body = []
    for one in capacity.bulkheads:
        share = one.peak / one.limit if one.limit else None
        figures = [one.waiting, one.arrivals, one.failed, one.effects]
        body.append(
            f'<tr><th scope="row">{name(one.name)}</th><td class="n">{count(one.limit)}</td>'
            f'<td class="n">{count(one.peak)}</td><td class="n">{percent(share, 0)}</td>'
            + "".join(f'<td class="n">{_figure(count(figure))}</td>' for figure in figures)
            + "</tr>"
        )
    share = capacity.peak / capacity.ceiling if capacity.ceiling else None
    body.append(
        f'<tr class="whole"><th scope="row">all together</th><td class="n">{count(capacity.ceiling)}</td>'
        f'<td class="n">{count(capacity.peak)}</td><td class="n">{percent(share, 0)}</td>{cells([""] * 4)}</tr>'
    )
    return table(f"<tr>{cells(heads, 'th')}</tr>", body, "Bulkheads", "glance")


def _refusals(capacity: Capacity) -> str:
    late = (
        f"{count(capacity.started_late)} calls reached a dependency after their run's deadline."
        if capacity.started_late
        else "No call reached a dependency after its run's deadline."
    )
    said = f"<p>{count(capacity.expired)} steps expired. {late}</p>"
    if not capacity.refusals and not capacity.refused_runs:
        return f"{said}<p>Nothing was refused: no run, no batch, no step.</p>"
    body = [
        f"<tr><td>{what}</td>{cells(esc(text, 80) for text in (who, outcome, why))}"
        f"<td class=n>{count(number)}</td></tr>"
        for what, rows in (("run", capacity.refused_runs), ("batch or step", capacity.refusals))
        for who, outcome, why, number in rows[:_MOST_REFUSALS]
    ]
    head = f"<tr>{cells(['what', 'class', 'outcome', 'reason'], 'th')}<th class=n>how often</th></tr>"
    return said + table(head, body, "Refusals", "glance")


def _cost(costs: Costs | None) -> str:
    """Runs and tokens by tenant, and how long runs waited for a session by size. Empty where cost is not counted."""
    if costs is None:
        return ""
    titles = [
        "admitted",
        *(f"refused: {esc(pool, 40)}" for pool in costs.pools),
        "settled",
        "forecast",
        "used",
        "lowest balance",
    ]
    head = "<tr><th>tenant</th>" + "".join(f"<th class=n>{title}</th>" for title in titles) + "</tr>"
    rows = []
    for row in costs.tenants:
        figures: list[float | None] = [row.admitted, *(row.refused.get(pool, 0) for pool in costs.pools)]
        figures += [row.settled, row.forecast, row.used, row.lowest_balance]
        values = "".join(f"<td class=n>{_figure(count(figure))}</td>" for figure in figures)
        rows.append(f"<tr><th scope=row>{name(row.tenant)}</th>{values}</tr>")
    sizes = [
        f"<tr><th scope=row>{esc(size.size_class, 40)}</th><td class=n>{count(size.admitted)}</td>"
        f"<td class=n>{count(size.refused)}</td>"
        + "".join(f"<td class=n>{_figure(time_cell(size.wait, q))}</td>" for q in _QUANTILES)
        + "</tr>"
        for size in costs.sizes
    ]
    size_head = "<tr><th>size</th><th class=n>admitted</th><th class=n>refused</th>"
    size_head += "".join(f"<th class=n>wait {q}, ms</th>" for q in _QUANTILES) + "</tr>"
    return (
        "<h3>Cost of runs</h3><p class=note>As the layer tells it: runs let in and refused at each pool; tokens that "
        f"they were forecast at, and charged when settled.</p>{table(head, rows, 'Cost by tenant', 'glance')}"
        f"<p>Most at once: {esc(most_at_once(costs))}.</p>{table(size_head, sizes, 'Wait for a session', 'glance')}"
    )


def _lanes(capacity: Capacity, end_s: float, phases: Sequence[tuple[str, float, float]]) -> str:
    """Each circuit over time, drawn."""
    states: dict[str, list[tuple[float, str]]] = {}
    for one in capacity.transitions:
        states.setdefault(one.dependency, []).append((one.t_ns / 1e9, one.state))
    if not states:
        return ""
    # What came after the last transition that is kept is not known.
    last_s = capacity.transitions[-1].t_ns / 1e9
    until = last_s if capacity.left_out else max(end_s, last_s)
    drawn = []
    for dependency, moves in list(states.items())[:MOST_BULKHEADS]:
        pairs = pairwise([*moves, (until, "")])
        spans = [(state, begin, end) for (begin, state), (end, _) in pairs if state != "closed"]
        drawn.append(svg.Lane(dependency, tuple(spans)))
    key = "".join(
        f'<span><svg class="swatch lanes" viewBox="0 0 22 8" aria-hidden="true"><rect class="{kind}" width="22" '
        f'height="8"/></svg> {said}</span>'
        for kind, said in (("open", "open"), ("half", "half-open"))
    )
    drawing = svg.lanes(drawn, max(end_s, until), phases)
    return f'<p class="key">{key}</p>{scroll(drawing, "Circuits, drawn")}'


def _attempts(capacity: Capacity) -> str:
    total = sum(capacity.attempts.values())
    body = [
        f'<tr><th scope="row">{number}</th><td class="n">{count(steps)}</td>'
        f'<td class="n">{percent(steps / total)}</td></tr>'
        for number, steps in capacity.attempts.items()
    ]
    head = '<tr><th>attempts of a step</th><th class="n">steps</th><th class="n">share</th></tr>'
    denied = ", ".join(f"{count(number)} {why}" for why, number in capacity.denied.items()) or "none"
    said = (
        f"{count(capacity.retries)} retry tokens were spent. Retries denied: {denied}. "
        f"{count(capacity.read_backs)} read-backs."
    )
    return f"<p>{esc(said, 1_000)}</p>" + table(head, body, "Attempts of a step", "glance")


def _circuits(capacity: Capacity) -> str:
    if not capacity.transitions:
        return "<p>No circuit moved.</p>"
    body = [
        f'<tr><td class="n">{seconds(one.t_ns)}</td><td>{name(one.dependency)}</td><td>{esc(one.state)}</td>'
        f"<td>{esc(one.reason)}</td></tr>"
        for one in capacity.transitions
    ]
    more = f"<p class=note>{count(capacity.left_out)} more in decisions.jsonl.</p>" if capacity.left_out else ""
    return table(f"<tr>{cells(['at', 'dependency', 'state', 'reason'], 'th')}</tr>", body, "Circuits", "glance") + more


def chart_lines(lines: Sequence[BulkLine]) -> list[dict[str, Any]]:
    """For report.js, which only ever sets names as text."""
    return [
        {
            "name": clean(one.name, 60),
            "in_use": one.in_use,
            "waiting": one.waiting,
            "limit": one.limit,
            "circuit": [{"state": state, "from": from_s, "to": to_s} for state, from_s, to_s in one.circuit],
        }
        for one in lines
    ]
