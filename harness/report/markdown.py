"""Markdown of what was found, for a pull request or the summary of a CI job.

A table of the checks, the worst first, and a few lines on each that did not PASS. Foreign text (tenant names, reasons,
sentences of a target) can write no markup, no link, no mention and no HTML: every character that Markdown reads is
escaped. It is bounded, because a summary that is too long is thrown away whole.
"""

from __future__ import annotations

import re

from harness.checks.verdict import Word
from harness.report.results import Case, Results
from harness.report.text import clean, count, quantity

MOST_CASES, MOST_TOLD = 200, 30
MOST_CHARACTERS = 65_000
"""GitHub takes a comment of 65,536, and a step's summary of 1 MiB: to which several commands of a step may append."""

_LEVELS = ((MOST_CASES, MOST_TOLD), (100, 20), (50, 10), (20, 5), (5, 2), (2, 1))
"""Rows of a table, and cases told: the first that is short enough is taken, so nothing is ever cut within a line."""

_ORDER = (Word.INVALID, Word.FAIL, Word.INCONCLUSIVE, Word.PASS)
_SIGNS = {Word.PASS: "✅", Word.FAIL: "❌", Word.INCONCLUSIVE: "❔", Word.INVALID: "🚫"}
_IN_CODE = re.compile(r"[^\w .,/…-]|_", re.ASCII)
_READ = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>:])")


def md(text: str, most: int = 400) -> str:
    """Foreign text as nothing but text: one line. A mention (@team) is broken, so that it calls nobody."""
    escaped = _READ.sub(r"\\\1", clean(text, most).replace("&", "\x00").replace("<", "\x01"))
    return escaped.replace("\x00", "&amp;").replace("\x01", "&lt;").replace("@", "&#64;").replace("http", "&#104;ttp")


def code(text: str, most: int = 120) -> str:
    """Foreign text in the type of code. Markdown is read inside of a tag too, so what it reads is made entities."""
    return f"<code>{_IN_CODE.sub(lambda match: f'&#{ord(match[0])};', clean(text, most))}</code>"


def markdown(results: Results) -> str:
    """At most MOST_CHARACTERS; what is left out is counted."""
    for rows, told in _LEVELS:
        text = _document(results, rows, told)
        if len(text) <= MOST_CHARACTERS:
            break
    return text


def _document(results: Results, rows: int, told: int) -> str:
    ordered = sorted(results.cases, key=lambda case: _ORDER.index(case.verdict.word))
    tally = [f"{n} {word.value}" for word in _ORDER if (n := sum(case.verdict.word is word for case in results.cases))]
    lines = [
        f"### {_SIGNS[results.word]} {results.word.value}: {md(results.name)}",
        "",
        md(results.about, 1_000),
        "",
        f"{md(results.headline)} {', '.join(tally)}. Exit code {results.exit_code}.",
        "",
    ]
    telling = [case for case in ordered if case.verdict.word is not Word.PASS]
    held = [case for case in ordered if case.verdict.word is Word.PASS]
    if telling:
        lines += [*_table(telling, rows), "", *_told(telling, told)]
    if held:
        several = "check" if len(held) == 1 else "checks"
        lines += [
            f"<details><summary>{len(held)} {several} PASS</summary>",
            "",
            *_table(held, rows),
            "",
            "</details>",
            "",
        ]
    lines += [f"{md(note, 1_000)}  " for note in results.notes[:told]]
    if len(results.notes) > told:
        lines.append(f"and {len(results.notes) - told} notes more")
    return "\n".join(lines).rstrip() + "\n"


def _table(cases: list[Case], most: int) -> list[str]:
    lines = ["| | check | measured | bound | evidence |", "|---|---|---:|---:|---:|"]
    for case in cases[:most]:
        verdict = case.verdict
        name = f"{case.situation}: {verdict.check}" if case.situation else verdict.check
        figures = (quantity(value, verdict.unit) for value in (verdict.measured, verdict.bound))
        cells = [f"{_SIGNS[verdict.word]} {verdict.word.value}", code(name), *(md(figure) for figure in figures)]
        lines.append(f"| {' | '.join([*cells, count(verdict.samples)])} |")
    if len(cases) > most:
        lines += ["", f"and {count(len(cases) - most)} more"]
    return lines


def _told(cases: list[Case], most: int) -> list[str]:
    lines = []
    for case in cases[:most]:
        verdict = case.verdict
        name = f"{case.situation}: {verdict.check}" if case.situation else verdict.check
        lines.append(f"- **{verdict.word.value}** {code(name)}: {md(verdict.sentence, 1_000)}")
        if verdict.add:
            lines.append(f"  - to add: {md(verdict.add, 1_000)}")
        if verdict.witnesses:
            lines.append(f"  - witnesses: {', '.join(code(witness, 60) for witness in verdict.witnesses)}")
        if case.folder:
            lines.append(f"  - ledger: {code(case.folder, 400)}")
    if len(cases) > most:
        lines.append(f"- and {count(len(cases) - most)} more")
    return [*lines, ""]
