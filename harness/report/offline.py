"""One HTML file that opens offline: style, scripts and data are in it, and its policy allows no other.

The content security policy names them by hash, so that no foreign text can ever run, and nothing is ever fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import orjson

from harness.report.html_parts import esc

CHARTS = ("uPlot.iife.min.js", "charts.js")
"""Scripts that a page with charts over time begins with: they define `overload` (see assets/charts.js)."""


def json_in_script(document: object) -> str:
    """JSON that can stand in a script element whatever is in it: no `<`, `>`, `&`, U+2028 or U+2029."""
    text = orjson.dumps(document).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _asset(name: str) -> str:
    text = (files("harness.report") / "assets" / name).read_text("utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"the asset {name} would end its own element")
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def document(title: str, inside: str, data: object, scripts: Sequence[str]) -> str:
    """inside: HTML that is escaped already. data: what the scripts draw, found as JSON under the id `data`."""
    style = _asset("uPlot.min.css") + "\n" + _asset("report.css")
    texts = [_asset(name) for name in scripts]
    policy = (
        f"default-src 'none'; script-src {' '.join(_hash(text) for text in texts)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{esc(title)} – overload</title><style>{style}</style>'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{inside}'
        f'<script type="application/json" id="data">{json_in_script(data)}</script>'
        + "".join(f"<script>{text}</script>" for text in texts)
        + "</body></html>\n"
    )
