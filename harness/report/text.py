"""Text of unknown origin made safe to show, and numbers made short: what every report writes its words with.

Tenant names, reasons and paths come from profiles, logs and the target's answers. Shown raw they could recolour a
terminal, move its cursor, hide a word behind a bidirectional override, or end a line early. Nothing here may let a
character through that changes anything but its own cell. Markup is the writer's business: HTML is
escaped in html_parts, rich markup is avoided by building `Text`.
"""

from __future__ import annotations

import math
import unicodedata

MISSING = "–"
"""Shown where there is no number. Never an empty cell: an empty cell looks like a fault of the report."""

_MOST_MARKS = 2
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def clean(text: str, most: int = 400) -> str:
    """One line, no control, format, surrogate or bidirectional character; those are shown as escapes such as \\x1b.

    A tab becomes a blank. At most `most` characters; a longer text loses its middle. Piled up accents are cut.
    """
    if len(text) > 4 * most:
        text = text[: 2 * most] + text[-2 * most :]
    if not text.isascii() or not text.isprintable():
        text = "".join(_characters(text))
    return fit(text, most)


def _characters(text: str) -> list[str]:
    shown: list[str] = []
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if character == "\t" or category == "Zs":
            shown.append(" ")
        elif category in _UNSAFE:
            shown.append(_escape(ord(character)))
        elif marks <= _MOST_MARKS:
            shown.append(character)
    return shown


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fit(text: str, width: int) -> str:
    """At most `width` characters: the middle goes, because the ends of names tell them apart."""
    if len(text) <= width:
        return text
    head = width // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :] if width > 1 else "…"


def count(value: int | float | None) -> str:
    """12345 -> 12,345."""
    return MISSING if value is None else f"{round(value):,}"


def percent(share: float | None, digits: int = 1) -> str:
    """0.842 -> 84.2 %. A share that is not quite 0 or 100 % is never rounded to it."""
    if share is None:
        return MISSING
    text = f"{share * 100:.{digits}f}"
    least = 10**-digits
    if share < 1 and float(text) >= 100:
        text = f"{100 - least:.{digits}f}"
    elif share > 0 and float(text) == 0:
        return f"<{least:.{digits}f} %"
    return f"{text} %"


def millis(value_ms: float | None) -> str:
    """Three significant digits are enough for people: 0.42, 13.1, 1,987 (ms)."""
    if value_ms is None:
        return MISSING
    if value_ms >= 100:
        return f"{value_ms:,.0f}"
    return f"{value_ms:.1f}" if value_ms >= 1 or value_ms == 0 else f"{value_ms:.2f}"


def quantity(value: float | None, unit: str) -> str:
    """A measured value with its unit, as verdicts carry them: free text, of which `share` is shown in percent."""
    if value is None:
        return MISSING
    if unit == "share" and math.isfinite(value):
        return f"{value * 100:.4g} %"
    text = f"{value:,.1f}".removesuffix(".0") if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {clean(unit, 40)}".strip()


def interval(low: float | None, high: float | None, unit: str) -> str:
    """`13.1 to 42.2`, in the unit that `quantity` would show; MISSING without ends."""
    if low is None and high is None:
        return MISSING
    bare = "share" if unit == "share" else ""
    return f"{quantity(low, bare)} to {quantity(high, bare)}"


def seconds(at_ns: int) -> str:
    """An instant or a duration for people: 0.5 s, 70 s, 12 min 30 s."""
    whole = at_ns / 1e9
    if whole >= 120:
        minutes, rest = divmod(round(whole), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{whole:.3g} s" if whole < 100 else f"{whole:.0f} s"
