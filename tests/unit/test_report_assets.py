"""The vendored chart library is the one that docs/decisions/0002-charts.md says it is."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUMS = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.parametrize("name", SUMS)
def test_assets_are_as_published(name: str) -> None:
    content = (ROOT / "harness/report/assets" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == SUMS[name]
    assert f"`{name}` |" in (ROOT / "docs/decisions/0002-charts.md").read_text("utf-8")
    assert SUMS[name] in (ROOT / "docs/decisions/0002-charts.md").read_text("utf-8")


THEMES = re.findall(r":root \{(.*?)\}", (ROOT / "harness/report/assets/report.css").read_text("utf-8"), re.DOTALL)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of `#rrggbb` or `#rgb`."""
    digits = colour.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark", "print"])
def test_words_and_lines_can_be_told_from_what_they_stand_on(theme: str) -> None:
    """4.5 for text and 3 for what is drawn, of the Web Content Accessibility Guidelines; in each theme."""
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", theme))
    for name in ("ink", "soft", "accent", "pass", "fail", "inconclusive", "invalid"):
        assert contrast(colours[name], colours["bg"]) >= 4.5, name
        assert contrast(colours[name], colours["card"]) >= 4.5, name
    for place in range(8):
        assert contrast(colours[f"c{place}"], colours["card"]) >= 3, place


def test_both_pages_take_their_charts_from_one_script() -> None:
    for name in ("report.js", "shadow.js"):
        text = (ROOT / "harness/report/assets" / name).read_text("utf-8")
        assert "= overload;" in text
        assert "new uPlot" not in text
