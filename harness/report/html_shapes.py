"""Distributions and re-plan rounds of the HTML report: each drawing with its numbers in words, or in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.report import svg
from harness.report.distributions import Curve, Distributions
from harness.report.html_parts import name, scroll, table
from harness.report.rounds import MOST_ROUNDS, Flow, Round
from harness.report.text import MISSING, count, percent


def distribution_section(drawn: Distributions, colours: Sequence[int]) -> str:
    """Two drawings a tenant: answered within, queued at most. Empty without a call that was sent."""
    panels = [
        _panel(one.tenant, one.ordinary, one.answered, one.queued, drawn.scale_ms, colour)
        for one, colour in zip(drawn.spreads, colours, strict=True)
        if one.answered or one.queued
    ]
    if not panels:
        return ""
    note = (
        "<p class=note>Whole distributions, all tenants on one logarithmic scale. <strong>Answered within</strong>: of "
        "all calls sent, the share served within that time of when it was due; calls that were refused or given up "
        "never are, so the curve ends at the served share. <strong>Queued at most</strong>: of calls whose wait is "
        "known, abandoned ones at their whole patience.</p>"
    )
    return f'{note}{_key(drawn)}<div class="multiples">{"".join(panels)}</div>'


def _key(drawn: Distributions) -> str:
    phases = [curve.phase for one in drawn.spreads for curve in one.answered]
    line = '<svg class="swatch" viewBox="0 0 22 8" aria-hidden="true"><path class="curve {}" d="M0 4H22"/></svg>'
    if "calm" in phases and "burst" in phases:
        kinds = f"<span>{line.format('weak')} calm</span><span>{line.format('strong k7')} burst</span>"
        return f'<p class="key">{kinds}</p>'
    return ""


def _panel(
    tenant: str, ordinary: bool, answered: Sequence[Curve], queued: Sequence[Curve], scale: Sequence[float], colour: int
) -> str:
    figures = [
        _figure("Answered within", f"{tenant}: answered within", answered, scale, colour),
        _figure("Queued at most", f"{tenant}: queued at most", queued, scale, colour),
    ]
    ends = ", ".join(f"{percent(curve.shares[-1])} of {count(curve.samples)} in {curve.phase}" for curve in answered)
    role = ' <span class="role">· ordinary</span>' if ordinary else ""
    return (
        f'<section class="panel shapes"><h3>{name(tenant)}{role}</h3>'
        f'<p class="note">Answered at all: {ends or MISSING}.</p><div class="pair">{"".join(figures)}</div></section>'
    )


def _figure(title: str, label: str, curves: Sequence[Curve], scale: Sequence[float], colour: int) -> str:
    if not curves:
        return f'<figure><figcaption>{title}</figcaption><p class="note">No wait was told.</p></figure>'
    said = "; ".join(f"{curve.phase}, {count(curve.samples)} calls: {_said(curve, scale)}" for curve in curves)
    drawing = svg.curves(curves, scale, f"{label}. {said}", colour)
    return f"<figure><figcaption>{title}</figcaption>{drawing}</figure>"


def _said(curve: Curve, scale: Sequence[float]) -> str:
    """The share at each power of ten of the scale, for those who do not see the curve."""
    tens = {round(place * (len(scale) - 1) / 4) for place in range(5)}
    return ", ".join(f"{percent(curve.shares[i], 0)} within {scale[i]:.3g} ms" for i in sorted(tens))


_SEGMENTS = (
    ("served", "served"),
    ("again", "lost, and re-planned"),
    ("lost", "lost, and not re-planned"),
    ("rest", "held back, or ended otherwise"),
)


def rounds_section(flows: Sequence[Flow], left_out: int) -> str:
    """A drawing and a table a tenant. Empty where nobody re-planned."""
    if not flows:
        return ""
    key = "".join(
        f'<span><svg class="swatch flow" viewBox="0 0 22 8" aria-hidden="true"><rect class="{kind}" width="22" '
        f'height="8"/></svg> {said}</span>'
        for kind, said in _SEGMENTS
    )
    note = (
        "<p class=note>Round 0 is original work; round k + 1 follows calls of round k that failed. On each ribbon: "
        "calls of the next round for each call of this one. Above 1 the loop grows by itself.</p>"
    )
    more = f"<p class=note>{count(left_out)} more tenants re-planned, less than these.</p>" if left_out else ""
    return note + f'<p class="key">{key}</p>' + "".join(_flow(flow) for flow in flows) + more


_COLUMNS: tuple[tuple[str, Callable[[Round], int], bool], ...] = (
    ("calls", lambda one: one.calls, True),
    ("served", lambda one: one.served, True),
    ("refused", lambda one: one.refused, True),
    ("abandoned", lambda one: one.abandoned, True),
    ("failed", lambda one: one.failed, False),
    ("held back", lambda one: one.held_back, False),
    ("other", lambda one: one.other, False),
    ("re-planned", lambda one: one.replanned, True),
    ("led to", lambda one: one.led_to, True),
)
"""Title, figure, and whether it is shown where all of it is zero."""


def _flow(flow: Flow) -> str:
    shown = [column for column in _COLUMNS if column[2] or any(column[1](one) for one in flow.rounds)]
    titles = ["round", *(title for title, _, _ in shown), "for each"]
    head = "<tr>" + "".join(f"<th class=n>{title}</th>" for title in titles) + "</tr>"
    body = [_row(one, shown, flow.cut and one is flow.rounds[-1]) for one in flow.rounds]
    untraced = "" if flow.traced else "<p class=note>The ledger does not say which call led to which.</p>"
    deeper = f"<p class=note>Rounds from {MOST_ROUNDS} on are counted together.</p>" if flow.cut else ""
    drawing = scroll(svg.flow(flow), f"Rounds of {flow.tenant}, drawn")
    numbers = table(head, body, f"Rounds of {flow.tenant}", "glance")
    return (
        f'<section class="panel wide"><h3>{name(flow.tenant)}</h3><div class="beside">{drawing}{numbers}</div>'
        f"{untraced}{deeper}</section>"
    )


def _row(one: Round, shown: Sequence[tuple[str, Callable[[Round], int], bool]], deeper: bool) -> str:
    growth = MISSING if not one.led_to or one.growth is None else f"{one.growth:.2f}"
    figures = [*(count(figure(one)) for _, figure, _ in shown), growth]
    cells = "".join(f'<td class="n{" nil" if text == "0" else ""}">{text}</td>' for text in figures)
    return f'<tr><th scope="row" class="n">{one.number}{"+" if deeper else ""}</th>{cells}</tr>'
