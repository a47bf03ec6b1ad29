"""The HTML of the lab: the form, made from the list of inputs, and the places that the scripts fill.

Everything that is shown as text is escaped here or set as text there; no style and no script stands in it, so that the
page's policy can forbid both (server.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from harness.lab import run
from harness.lab.inputs import DEFAULTS, FIELDS, MOST_TENANTS, ROW, TOUR, Field
from harness.report.html_parts import esc
from harness.report.offline import json_in_script

_GROUPS = (
    ("service", "Service"),
    ("admission", "Admission"),
    ("tenants", "Ordinary tenants"),
    ("agent", "The agent"),
    ("replans", "Its re-plans"),
    ("budget", "Its budget"),
    ("trial", "Callers and trial"),
)
_TRIALS = (0, 20, 60, run.MOST_MEMBERS)
_MODES = {"count": "numeric", "duration": "text", "rate": "text", "text": "text"}


@cache
def page() -> str:
    """The whole page. Its data is under the id `data`, its scripts under /assets."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>Lab – overload</title>'
        + "".join(f'<link rel="stylesheet" href="/assets/{n}">' for n in ("uPlot.min.css", "report.css", "lab.css"))
        + '<script src="/assets/uPlot.iife.min.js" defer></script><script type="module" src="/assets/lab.js"></script>'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body class="lab">'
        '<a class="skip" href="#results">Skip to the results</a>'
        f"{_bar()}{_tour()}<main>{_settings()}{_results()}</main>"
        '<p id="status" class="sr" role="status"></p><p id="readout" class="sr" role="status"></p>'
        "<noscript><p class=alone>The lab needs JavaScript; overload simulate does the same in the terminal."
        "</p></noscript>"
        f'<script type="application/json" id="data">{json_in_script(_data())}</script></body></html>\n'
    )


def _data() -> dict[str, Any]:
    return {
        "defaults": DEFAULTS,
        "most_tenants": MOST_TENANTS,
        "row": [part for part, _, _ in ROW],
        "policies": {field.name: field.policies for field in FIELDS if field.policies},
        "labels": {field.name: field.label for field in FIELDS},
        "words": {field.name: dict(field.choices) for field in FIELDS if field.choices},
        "tour": [{"title": s.title, "change": dict(s.change), "look": s.look} for s in TOUR],
        "trials": _TRIALS,
    }


def _bar() -> str:
    actions = (
        ("reset", "Reset"), ("compare", "Compare"), ("link", "Copy link"), ("export", "Export JSON"),
        ("import", "Import"), ("save", "Save as profile"),
    )  # fmt: skip
    buttons = "".join(f'<button type="button" id="{name}">{words}</button>' for name, words in actions)
    return (
        '<header class="bar"><h1><span>overload</span> lab</h1>'
        '<p id="said" aria-hidden="true"></p>'
        f'<div class="actions">{buttons}</div>'
        '<input type="file" id="file" accept="application/json,.json" hidden></header>'
    )


def _tour() -> str:
    steps = "".join(
        f'<li><button type="button" class="step" data-step="{i}"><span class="place">{i + 1}</span> {esc(s.title)}'
        "</button></li>"
        for i, s in enumerate(TOUR)
    )
    return (
        '<section class="tour" aria-labelledby="tour-h"><h2 id="tour-h">One thing at a time</h2>'
        f'<ol>{steps}</ol><p id="look" aria-live="polite"></p></section>'
    )


def _settings() -> str:
    groups = "".join(_group(name, title) for name, title in _GROUPS)
    return (
        '<aside aria-labelledby="settings-h"><details id="settings" open>'
        '<summary id="settings-h">Settings <span id="changes"></span></summary>'
        '<div id="which" role="radiogroup" aria-label="Setting to change" hidden>'
        '<button type="button" role="radio" aria-checked="true" data-which="0">A</button>'
        '<button type="button" role="radio" aria-checked="false" data-which="1">B</button></div>'
        f'<form id="form" autocomplete="off" novalidate>{groups}'
        f"{_ensemble()}</form></details></aside>"
    )


def _group(name: str, title: str) -> str:
    if name == "tenants":
        heads = "".join(f"<span>{words}</span>" for words in ("name", "rate"))
        body = (
            f'<div class="rows-head" aria-hidden="true">{heads}<span class="weight">weight</span></div>'
            '<div id="rows"></div><p class="error" id="error-tenants" hidden></p>'
            '<button type="button" id="add" class="quiet">Add a tenant</button>'
        )
    else:
        body = "".join(_field(field) for field in FIELDS if field.group == name)
    return f'<fieldset data-group="{name}"><legend>{title}</legend>{body}</fieldset>'


def _field(field: Field) -> str:
    told = f"error-{field.name}" + (f" about-{field.name}" if field.about else "")
    about = f'<small id="about-{field.name}">{esc(field.about)}</small>' if field.about else ""
    common = f'id="in-{field.name}" name="{field.name}" aria-describedby="{told}"'
    if field.kind == "choice":
        control = f"<select {common}>{_options(field.choices, field.default)}</select>"
    elif field.kind == "switch":
        control = f'<input type="checkbox" {common} value="on">'
    else:
        control = (
            f'<input type="text" {common} value="{esc(field.default)}" inputmode="{_MODES[field.kind]}" '
            f'data-kind="{field.kind}" spellcheck="false" autocapitalize="off" maxlength="200">'
        )
    return (
        f'<div class="field" data-field="{field.name}"><label for="in-{field.name}">'
        f'<span class="words">{esc(field.label)}</span><span class="was"></span>{about}</label>{control}'
        f'<p class="error" id="error-{field.name}" hidden></p></div>'
    )


def _options(choices: Iterable[tuple[str, str]], default: str) -> str:
    return "".join(
        f'<option value="{esc(value)}"{" selected" if value == default else ""}>{esc(words)}</option>'
        for value, words in choices
    )


def _ensemble() -> str:
    options = _options([(str(n), f"{n} trials" if n else "off") for n in _TRIALS], "20")
    return (
        '<fieldset data-group="ensemble"><legend>Ensemble</legend><div class="field"><label for="trials">'
        '<span class="words">Range over</span><small id="about-trials">each tenant\'s phase drawn anew</small>'
        f'</label><select id="trials" aria-describedby="about-trials">{options}</select></div></fieldset>'
    )


def _results() -> str:
    return '<div id="results" tabindex="-1"><div id="wrong" role="alert" hidden></div><div id="views"></div></div>'
