"""The small pieces of the HTML report: escaped text, verdict cards, interval bars.

Every text of unknown origin goes through `esc`. Nothing here writes a style or an event attribute: the page's policy
forbids them, so that text which slipped through could still do nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.checks.verdict import Finding, Verdict, Word
from harness.report.text import clean, count, interval, quantity

MOST_FINDINGS = 200
_SIGNS = {Word.PASS: "✓", Word.FAIL: "✕", Word.INCONCLUSIVE: "?", Word.INVALID: "!"}


def esc(text: object, most: int = 400) -> str:
    """Safe in text and in a double-quoted attribute, one line, no control or bidirectional character."""
    return html.escape(clean(str(text), most), quote=True)


def name(text: object) -> str:
    """A tenant's or other foreign name, isolated from the direction of the text around it."""
    return f"<bdi>{esc(text, 120)}</bdi>"


def chip(word: Word) -> str:
    return f'<span class="chip {word.value.lower()}"><span aria-hidden="true">{_SIGNS[word]}</span> {word.value}</span>'


def table(head: str, rows: Iterable[str], label: str, kind: str = "") -> str:
    """A table in a box that scrolls by itself on a narrow screen, reachable by keyboard."""
    return scroll(f'<table class="{kind}"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>', label)


def scroll(inside: str, label: str) -> str:
    """What may be wider than a narrow screen, in a box that scrolls by itself."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{esc(label)}">{inside}</div>'


def cells(values: Iterable[str], tag: str = "td") -> str:
    return "".join(f"<{tag}>{value}</{tag}>" for value in values)


def verdict_card(place: int, verdict: Verdict, witness_anchors: Mapping[str, str]) -> str:
    """One check: what it says, what was measured, and each of its findings."""
    figures = [
        ("measured", quantity(verdict.measured, verdict.unit)),
        ("bound", quantity(verdict.bound, verdict.unit)),
        ("evidence", f"{count(verdict.samples)} samples"),
    ]
    facts = "".join(f"<div><dt>{label}</dt><dd>{esc(value)}</dd></div>" for label, value in figures)
    add = f'<p class="add"><strong>To add:</strong> {esc(verdict.add, 600)}</p>' if verdict.add else ""
    return (
        f'<article class="verdict {verdict.word.value.lower()}" id="v{place}">'
        f"<h3>{chip(verdict.word)} <code>{esc(verdict.check, 80)}</code></h3>"
        f"<p>{esc(verdict.sentence, 800)}</p>{add}<dl class=figures>{facts}</dl>"
        f"{_findings(verdict)}{_witness_links(verdict, witness_anchors)}</article>"
    )


def _witness_links(verdict: Verdict, anchors: Mapping[str, str]) -> str:
    if not verdict.witnesses:
        return ""
    links = [
        f'<a href="#{anchors[id_]}"><code>{esc(id_, 40)}</code></a>'
        if id_ in anchors
        else f"<code>{esc(id_, 40)}</code>"
        for id_ in verdict.witnesses
    ]
    return f'<p class="witnesses">Witnesses: {" ".join(links)}</p>'


def _findings(verdict: Verdict) -> str:
    if not verdict.findings:
        return ""
    worst_first = sorted(verdict.findings, key=lambda finding: finding.word is Word.PASS)
    shown = worst_first[:MOST_FINDINGS]
    scales = _scales(shown)
    tally = {word: sum(f.word is word for f in verdict.findings) for word in Word}
    said = ", ".join(f"{n} {word.value}" for word, n in tally.items() if n)
    if len(shown) < len(worst_first):
        said += f"; the first {MOST_FINDINGS} are shown"
    head = (
        f"<tr>{cells(['', 'who', 'what'], 'th')}"
        '<th class="n">measured</th><th class="n">interval</th><th class="n">bound</th>'
        '<th></th><th class="n">samples</th></tr>'
    )
    rows = [_finding_row(finding, scales[finding.quantity, finding.unit]) for finding in shown]
    opened = "" if verdict.word is Word.PASS else " open"
    body = table(head, rows, f"Findings of {verdict.check}", "findings")
    return f"<details{opened}><summary>{len(verdict.findings)} findings: {said}</summary>{body}</details>"


def _finding_row(finding: Finding, scale: Scale) -> str:
    ends = interval(finding.low, finding.high, finding.unit)
    note = f'<div class="note">{esc(finding.note)}</div>' if finding.note else ""
    figures = [quantity(finding.measured, finding.unit), ends, quantity(finding.bound, finding.unit)]
    return (
        f"<tr>{cells([chip(finding.word), name(finding.subject), esc(finding.quantity) + note])}"
        + "".join(f'<td class="n">{esc(figure)}</td>' for figure in figures)
        + f'<td>{bar(finding, scale)}</td><td class="n">{count(finding.samples)}</td></tr>'
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """The values at the ends of a bar: one scale for all findings of one quantity, so that they can be compared."""

    low: float
    high: float

    def x(self, value: float, width: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(4 + min(1.0, max(0.0, share)) * (width - 8), 1)


def _scales(findings: Sequence[Finding]) -> dict[tuple[str, str], Scale]:
    ends: dict[tuple[str, str], list[float]] = {}
    for f in findings:
        values = [v for v in (f.low, f.measured, f.high, f.bound) if v is not None and abs(v) < 1e300]
        ends.setdefault((f.quantity, f.unit), [0.0]).extend(values)
    return {key: _scale(min(values), max(values)) for key, values in ends.items()}


def _scale(low: float, high: float) -> Scale:
    return Scale(low, high) if high > low else Scale(low - 1, high + 1)


def bar(finding: Finding, scale: Scale, width: int = 160) -> str:
    """The interval as a bar, the measured value as a dot, the bound as a line."""
    parts = [f'<line class="axis" x1="4" y1="10" x2="{width - 4}" y2="10"/>']
    low, high = finding.low, finding.high
    if low is not None and high is not None:
        left, right = scale.x(low, width), scale.x(high, width)
        parts.append(
            f'<rect class="interval" x="{left}" y="6" width="{max(1.5, round(right - left, 1))}" height="8" rx="2"/>'
        )
    if finding.bound is not None:
        at = scale.x(finding.bound, width)
        parts.append(f'<line class="bound" x1="{at}" y1="1" x2="{at}" y2="19"/>')
    if finding.measured is not None:
        parts.append(f'<circle class="measured" cx="{scale.x(finding.measured, width)}" cy="10" r="3.5"/>')
    said = f"measured {quantity(finding.measured, finding.unit)}, bound {quantity(finding.bound, finding.unit)}"
    return (
        f'<svg class="bar {finding.word.value.lower()}" viewBox="0 0 {width} 20" width="{width}" height="20" '
        f'role="img" aria-label="{esc(said)}">{"".join(parts)}</svg>'
    )
