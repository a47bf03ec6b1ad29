"""Drawings of the HTML report that need no script: distributions, the flow of re-plans, circuits over time.

Plain SVG, themed by the style sheet through classes, so that they print, follow light and dark, and stand without
JavaScript. Colour is never the only sign: lines differ in dash and width, spans in pattern, and each number is in a
table beside the drawing. Texts are escaped here; everything else is a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.distributions import Curve
from harness.report.html_parts import esc
from harness.report.rounds import Flow, Round
from harness.report.text import count

_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 8, 22


def curves(drawn: Sequence[Curve], scale_ms: Sequence[float], label: str, colour: int) -> str:
    """Shares against time on a logarithmic scale. The last curve is the strong one."""
    width, height = 300, 150
    low, high = math.log10(scale_ms[0]), math.log10(scale_ms[-1])
    inner_w, inner_h = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def x(value_ms: float) -> float:
        return round(_LEFT + (math.log10(value_ms) - low) / (high - low) * inner_w, 1)

    def y(share: float) -> float:
        return round(_TOP + (1 - share) * inner_h, 1)

    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(share)}" y2="{y(share)}"/>'
        f'<text x="{_LEFT - 5}" y="{y(share) + 3.5}" class="end">{share * 100:.0f} %</text>'
        for share in (0.0, 0.5, 1.0)
    ]
    decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    step = max(1, math.ceil(len(decades) / 6))
    for power in decades:
        at = x(10.0**power)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        if (power - decades[0]) % step == 0:
            parts.append(f'<text x="{at}" y="{height - 7}" class="mid">{_time(power)}</text>')
    for place, curve in enumerate(drawn):
        kind = f"k{colour} strong" if place == len(drawn) - 1 else "weak"
        parts.append(f'<path class="curve {kind}" d="{_steps(curve.shares, [x(ms) for ms in scale_ms], y)}"/>')
    return _svg(width, height, label, "".join(parts))


def _steps(shares: Sequence[float], xs: Sequence[float], y: object) -> str:
    assert callable(y)
    parts, last = [f"M{xs[0]} {y(shares[0])}"], shares[0]
    for at, share in zip(xs[1:], shares[1:], strict=True):
        if share != last:
            parts.append(f"H{at}V{y(share)}")
            last = share
    return "".join([*parts, f"H{xs[-1]}"])


def _time(power: int) -> str:
    """10^power ms as people say it."""
    if power < 0:
        return f"{10.0 ** (power + 3):g} us"
    return f"{10.0**power:g} ms" if power < 3 else f"{10.0 ** (power - 3):,.0f} s"


def _svg(width: int, height: int, label: str, inside: str, kind: str = "drawing") -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{esc(label, 300)}">{inside}</svg>'
    )


# Re-plans

_BAR, _STEP, _TALL, _HEAD = 30, 128, 150, 34
_LANES_LEFT, _LANES_RIGHT = 150, 30


def flow(drawn: Flow) -> str:
    """Rounds as bars, each cut into how its calls ended; a ribbon from what was re-planned to what it led to."""
    most = max((one.calls for one in drawn.rounds), default=0) or 1
    width = 20 + len(drawn.rounds) * _STEP - (_STEP - _BAR) + 70
    parts = []
    for place, one in enumerate(drawn.rounds):
        left = 20 + place * _STEP
        if place + 1 < len(drawn.rounds):
            parts.append(_ribbon(one, drawn.rounds[place + 1], left + _BAR, most))
        parts.append(_bar(one, left, most))
        deeper = "+" if drawn.cut and place == len(drawn.rounds) - 1 else ""
        middle = left + _BAR / 2
        parts.append(
            f'<text x="{middle}" y="12" class="mid strong">{count(one.calls)}</text>'
            f'<text x="{middle}" y="26" class="mid">calls</text>'
            f'<text x="{middle}" y="{_HEAD + _TALL + 16}" class="mid">round {one.number}{deeper}</text>'
        )
    told = (f"round {one.number}: {count(one.calls)} calls, {count(one.served)} served" for one in drawn.rounds)
    said = ", ".join(told)
    return _svg(width, _HEAD + _TALL + 24, f"Re-plans of {drawn.tenant}. {said}", "".join(parts), "drawing flow")


def parts_of(one: Round) -> tuple[tuple[str, int], ...]:
    """How a bar is cut, from its foot: what was re-planned is last, so that its ribbon leaves at the top."""
    lost = one.refused + one.abandoned + one.failed
    again = min(one.replanned, one.calls)
    rest = one.calls - one.served - lost
    given_up = max(0, one.calls - one.served - rest - again)
    return ("served", one.served), ("rest", rest), ("lost", given_up), ("again", again)


def _bar(one: Round, left: int, most: int) -> str:
    parts, foot = [], float(_HEAD + _TALL)
    for kind, calls in parts_of(one):
        height = calls / most * _TALL
        foot -= height
        if calls:
            parts.append(
                f'<rect class="{kind}" x="{left}" y="{foot:.1f}" width="{_BAR}" height="{max(0.5, height):.1f}">'
                f"<title>{kind}: {count(calls)}</title></rect>"
            )
    return "".join(parts)


def _ribbon(one: Round, after: Round, left: int, most: int) -> str:
    """From the re-planned part of a bar to the whole of the next."""
    if not one.replanned:
        return ""
    below = _HEAD + _TALL
    top = below - one.calls / most * _TALL
    foot = top + min(one.replanned, one.calls) / most * _TALL
    right, next_top = left + _STEP - _BAR, below - min(one.led_to, after.calls) / most * _TALL
    middle = (left + right) / 2
    path = (
        f"M{left} {top:.1f}C{middle} {top:.1f} {middle} {next_top:.1f} {right} {next_top:.1f}V{below}"
        f"C{middle} {below} {middle} {foot:.1f} {left} {foot:.1f}Z"
    )
    at = (top + foot + next_top + below) / 4
    growth = f'<text x="{middle}" y="{at:.1f}" class="mid strong">×{one.growth:.2f}</text>'
    return f'<path class="ribbon" d="{path}"/>{growth}'


# Circuits


@dataclass(frozen=True, slots=True)
class Lane:
    """One circuit over time. spans: (state, from_s, to_s) while it was not closed."""

    name: str
    spans: tuple[tuple[str, float, float], ...]


def lanes(drawn: Sequence[Lane], end_s: float, phases: Sequence[tuple[str, float, float]]) -> str:
    """A lane a circuit: a thin line while it is closed, a full bar while it is open, a hatched one while half-open."""
    width, left, high = 900, _LANES_LEFT, 26
    foot = 20 + len(drawn) * high

    def x(at_s: float) -> float:
        return round(left + min(1.0, max(0.0, at_s / end_s if end_s else 0)) * (width - left - _LANES_RIGHT), 1)

    parts = [
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="6" height="6" class="hatch-back"/><line x1="0" y1="0" x2="0" y2="6" class="hatch-line"/>'
        "</pattern></defs>"
    ]
    for phase, from_s, to_s in phases:
        kind = "burst" if phase == "burst" else "plain"
        parts.append(
            f'<rect class="phase {kind}" x="{x(from_s)}" y="16" width="{max(0.0, x(to_s) - x(from_s)):.1f}" '
            f'height="{foot - 16}"/>'
            f'<text x="{x(from_s) + 3}" y="12">{esc(phase, 20)}</text>'
        )
    for place, lane in enumerate(drawn):
        top = 20 + place * high
        parts.append(
            f'<text x="{left - 8}" y="{top + 15}" class="end strong">{esc(lane.name, 22)}</text>'
            f'<line class="closed" x1="{left}" x2="{width - _LANES_RIGHT}" y1="{top + 11}" y2="{top + 11}"/>'
        )
        for state, from_s, to_s in lane.spans:
            kind = "open" if state == "open" else "half"
            parts.append(
                f'<rect class="{kind}" x="{x(from_s)}" y="{top + 3}" width="{max(1.5, x(to_s) - x(from_s)):.1f}" '
                f'height="16"><title>{esc(state)}, {from_s:.3f} s to {to_s:.3f} s</title></rect>'
            )
    for place in range(5):
        at = end_s * place / 4
        parts.append(f'<text x="{x(at)}" y="{foot + 14}" class="mid">{at:.3g} s</text>')
    said = "; ".join(f"{lane.name} was not closed {len(lane.spans)} times" for lane in drawn)
    return _svg(width, foot + 20, f"Circuits over time. {said}", "".join(parts), "drawing lanes")
