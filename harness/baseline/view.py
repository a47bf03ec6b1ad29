"""A comparison for people and for machines: what changed first, in a table; all of it as JSON, and for CI.

Keys of the JSON document: schema, base, new, verdict, exit_code, notes, invalid, counts {word: n}, rows [{situation,
subject, phase, quantity, word, base, new, change, low, high, margin, unit, n, gates, note}], checks [{situation, check,
word, base, new, note}]. A number that is not there is null. Nothing here judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from harness.baseline.compare import WORST_FIRST, Change, CheckRow, Diff, Row
from harness.baseline.model import CheckFigures
from harness.checks.verdict import Verdict, Word
from harness.report.grid import Cell, grid, line
from harness.report.results import Case, Results
from harness.report.terminal import STYLES
from harness.report.text import MISSING, clean, count, quantity

SCHEMA = 1
HEADLINES = {
    Word.PASS: "No regression, and one that matters is ruled out.",
    Word.FAIL: "A regression: a change for the worse that the evidence supports, larger than its margin.",
    Word.INCONCLUSIVE: "No regression is shown, and one cannot be ruled out.",
    Word.INVALID: "The new trial is not to be trusted.",
}
NAMES = {
    "served": "served share", "refused": "refused share", "abandoned": "abandoned share", "replans": "re-plan share",
    "wait_mean_ms": "mean wait", "wait_p50_ms": "wait p50", "wait_p95_ms": "wait p95",
}  # fmt: skip
_CHANGES = {Change.WORSE: "bold red", Change.UNCLEAR: "yellow", Change.BETTER: "green", Change.SAME: "dim"}
_HEADER = [
    ("", "situation"), ("", "tenant"), ("", "phase"), ("", "figure"), ("", "change"), ("", "base"), ("", "new"),
    ("", "by"), ("", "interval"), ("", "margin"), ("", "calls"),
]  # fmt: skip
_CHECKS = [("", "situation"), ("", "check"), ("", "change"), ("", "base"), ("", "new"), ("measured", "base"),
           ("measured", "new")]  # fmt: skip
MOST_ROWS = 60


def show(diff: Diff, console: Console, everything: bool = False) -> None:
    """everything: rows that did not change, too, and those that decide nothing."""
    line(console, Cell(diff.word.value, STYLES[diff.word]), f"  {clean(diff.base)} -> {clean(diff.new)}")
    line(console, diff.invalid or HEADLINES[diff.word], indent=2)
    rows = [row for row in _ordered(diff.rows) if everything or _telling(row)]
    checks = [row for row in _ordered_checks(diff.checks) if everything or row.word is not Change.SAME]
    # Where all is of one situation, its column would only take room.
    situations = {row.situation for row in diff.rows} | {row.situation for row in diff.checks}
    skip = 0 if len(situations) > 1 else 1
    if rows:
        console.print()
        cells = [_cells(row)[skip:] for row in rows[: None if everything else MOST_ROWS]]
        grid(console, _HEADER[skip:], cells, lead=5 - skip)
    if checks:
        console.print()
        grid(console, _CHECKS[skip:], [_check_cells(row)[skip:] for row in checks], lead=5 - skip)
    console.print()
    for note in (*_notes(rows, checks), *diff.notes):
        line(console, clean(note), indent=2)
    line(console, _tally(diff), indent=2)


def _telling(row: Row) -> bool:
    return row.word in (Change.WORSE, Change.BETTER) or (row.gates and row.word is Change.UNCLEAR)


def _ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (not row.gates, WORST_FIRST.index(row.word)))


def _ordered_checks(rows: Sequence[CheckRow]) -> list[CheckRow]:
    return sorted(rows, key=lambda row: WORST_FIRST.index(row.word))


def _tally(diff: Diff) -> str:
    words = ", ".join(f"{n} {word.value}" for word in WORST_FIRST if (n := diff.count(word)))
    shown = sum(not row.gates for row in diff.rows)
    more = f"; {shown} figures of others are shown and decide nothing" if shown else ""
    return f"{words or 'nothing'} of what decides{more} (--all, docs/baselines.md)"


def _notes(rows: Sequence[Row], checks: Sequence[CheckRow]) -> list[str]:
    said = [f"{row.situation} {row.check}: {row.note}" for row in checks if row.note]
    said += [f"{row.subject} {row.phase} {NAMES[row.quantity]}: {row.note}" for row in rows if row.note and row.gates]
    return list(dict.fromkeys(said))[:20]


def _cells(row: Row) -> list[Cell]:
    style = _CHANGES.get(row.word, "dim") if row.gates else "dim"
    word = row.word.value if row.gates else f"({row.word.value})"
    change = row.change
    ends = f"{_signed(change.low)} to {_signed(change.high)}" if change else MISSING
    return [
        Cell(clean(row.situation, 18)),
        Cell(clean(row.subject, 20)),
        Cell(clean(row.phase, 12)),
        Cell(NAMES[row.quantity]),
        Cell(word, style),
        Cell(_figure(row.base, row.unit)),
        Cell(_figure(row.new, row.unit)),
        Cell(_signed(change.estimate) if change else MISSING, style),
        Cell(ends),
        Cell(quantity(row.margin, row.unit)),
        Cell(f"{count(row.n[0])} {count(row.n[1])}"),
    ]


def _figure(value: float | None, unit: str) -> str:
    return quantity(value, "%" if unit == "pp" else unit)


def _signed(value: float) -> str:
    return f"{value:+.4g}" if abs(value) >= 0.005 else "0"


def _check_cells(row: CheckRow) -> list[Cell]:
    words = [Cell(one.word.value, STYLES[one.word]) if one else Cell(MISSING, "dim") for one in (row.base, row.new)]
    return [
        Cell(clean(row.situation, 18)),
        Cell(clean(row.check, 32) or MISSING),
        Cell(row.word.value, _CHANGES.get(row.word, "dim")),
        *words,
        *(Cell(quantity(one.measured, one.unit) if one else MISSING) for one in (row.base, row.new)),
    ]


def document(diff: Diff) -> dict[str, Any]:
    """For machines."""
    return {
        "schema": SCHEMA,
        "base": diff.base,
        "new": diff.new,
        "verdict": diff.word.value,
        "exit_code": diff.exit_code,
        "invalid": diff.invalid,
        "notes": list(diff.notes),
        "counts": {word.value: diff.count(word) for word in Change},
        "rows": [_row(row) for row in _ordered(diff.rows)],
        "checks": [
            {"situation": row.situation, "check": row.check, "word": row.word.value, "base": _told(row.base),
             "new": _told(row.new), "note": row.note}
            for row in _ordered_checks(diff.checks)
        ],
    }  # fmt: skip


def _told(figures: CheckFigures | None) -> dict[str, Any] | None:
    return figures.model_dump(mode="json") if figures else None


def _row(row: Row) -> dict[str, Any]:
    change = row.change
    return {
        "situation": row.situation, "subject": row.subject, "phase": row.phase, "quantity": row.quantity,
        "word": row.word.value, "base": row.base, "new": row.new, "change": change.estimate if change else None,
        "low": change.low if change else None, "high": change.high if change else None, "margin": row.margin,
        "unit": row.unit, "n": list(row.n), "gates": row.gates, "note": row.note,
    }  # fmt: skip


_WORDS = {Change.WORSE: Word.FAIL, Change.UNCLEAR: Word.INCONCLUSIVE}


def results(diff: Diff) -> Results:
    """For JUnit, Markdown and annotations: a case for each figure that decides, and for each check."""
    cases = [Case(_verdict(row)) for row in _ordered(diff.rows) if row.gates and row.word is not Change.THIN]
    cases += [Case(_check_verdict(row)) for row in _ordered_checks(diff.checks)]
    if diff.invalid:
        broken = Verdict("diff.trial", Word.INVALID, None, None, "", 0, diff.invalid)
        cases.insert(0, Case(broken))
    about = f"{diff.base} -> {diff.new}"
    return Results(
        "overload diff", about, diff.word, HEADLINES[diff.word], tuple(cases), diff.notes, {"base": diff.base}
    )


def _verdict(row: Row) -> Verdict:
    word = _WORDS.get(row.word, Word.PASS)
    change = row.change
    by = f" (by {_signed(change.estimate)}, interval {_signed(change.low)} to {_signed(change.high)})" if change else ""
    said = (
        f"{row.subject} in {row.phase}: {NAMES[row.quantity]} {_figure(row.base, row.unit)} -> "
        f"{_figure(row.new, row.unit)}{by}: {row.word.value}"
    )
    add = "a longer trial, or several in the baseline" if word is Word.INCONCLUSIVE else ""
    name = f"{row.situation}.{row.subject} {row.phase} {NAMES[row.quantity]}"
    measured = change.estimate if change else None
    return Verdict(name, word, measured, row.margin, row.unit, min(row.n), f"{said}.", add=row.note or add)


def _check_verdict(row: CheckRow) -> Verdict:
    word = _WORDS.get(row.word, Word.PASS)
    words = [one.word.value if one else "not judged" for one in (row.base, row.new)]
    said = f"{words[0]} -> {words[1]}" + (f": {row.note}" if row.note else "")
    new = row.new
    figures = (new.measured, new.bound, new.unit, new.samples) if new else (None, None, "", 0)
    return Verdict(f"{row.situation}.{row.check or 'trial'}", word, *figures, f"{said}.")
