"""A verification for people: a board while it runs, a table at its end, and one HTML page that links to the reports.

On a terminal the board renews itself; elsewhere one plain line for each situation that has ended. Nothing is read as
markup, nothing here judges.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.text import Text

from harness.checks.verdict import Verdict, Word
from harness.report.grid import Cell, grid, line, sayable
from harness.report.html_parts import chip, esc, table
from harness.report.notes import HEADLINES, worst_first
from harness.report.renewed import Renewed
from harness.report.terminal import STYLES
from harness.report.text import clean, count, fit, quantity
from harness.report.verification import Verification

_CHECK_WIDTH = 28
_WORD_WIDTH = 13
_RENEW_PER_S = 4


@dataclass(slots=True)
class Place:
    """One line of the board. state: `waiting`, `running` or `done`."""

    name: str
    about: str
    state: str = "waiting"
    begun_s: float = 0.0
    seconds: float = 0.0
    word: Word | None = None
    sentence: str = ""


class Board(Renewed):
    """A context manager. `running(name)` and `done(name, word, seconds, sentence)` may be called from any thread.

    cases: (name, what it is about). now_s: a monotonic clock.
    """

    def __init__(
        self, cases: Sequence[tuple[str, str]], console: Console, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(console)
        self._places = {name: Place(name, about) for name, about in cases}
        self._now_s = now_s
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._begin(get_renderable=self.picture, refresh_per_second=_RENEW_PER_S)
        return self

    def running(self, name: str) -> None:
        with self._lock:
            place = self._places[name]
            place.state, place.begun_s, place.word = "running", self._now_s(), None

    def done(self, name: str, word: Word, seconds: float, sentence: str) -> None:
        with self._lock:
            place = self._places[name]
            place.state, place.word, place.seconds, place.sentence = "done", word, seconds, sentence
            ended = sum(one.state == "done" for one in self._places.values())
            if self._live is None:
                told = (
                    f"{ended}/{len(self._places)}  {word.value:{_WORD_WIDTH}}{name}  {seconds:.1f} s  {clean(sentence)}"
                )
                self._console.print(Text(sayable(told, self._console)), soft_wrap=True, highlight=False)

    def picture(self) -> Text:
        """The board as it is now, at most as wide as the console."""
        with self._lock:
            lines = [self._line(place) for place in self._places.values()]
        return Text("\n").join(lines)

    def _line(self, place: Place) -> Text:
        text = Text(no_wrap=True)
        if place.word is not None:
            text.append(place.word.value.ljust(_WORD_WIDTH), style=STYLES[place.word])
        else:
            text.append(place.state.ljust(_WORD_WIDTH), style="cyan" if place.state == "running" else "dim")
        seconds = self._now_s() - place.begun_s if place.state == "running" else place.seconds
        text.append(f"{place.name:10} ", style="bold")
        text.append(f"{seconds:5.1f} s  " if place.state != "waiting" else " " * 9, style="dim")
        text.append(sayable(clean(place.sentence or place.about), self._console))
        text.truncate(max(40, self._console.width))
        return text


def show(verification: Verification, console: Console, beside: Sequence[str] = ()) -> None:
    """The table, and how to see more. beside: lines of further files that were written."""
    headline = f"  {situations(len(verification.rows))} against {verification.target}"
    line(console, Cell(verification.word.value, STYLES[verification.word] + " reverse"), Cell(clean(headline), "bold"))
    line(console, f"{HEADLINES[verification.word]} Exit code {verification.exit_code}.")
    if caught := verification.catch():
        line(console, Cell(clean(caught), "bold"))
    console.print()
    header = [("", "check"), ("", "verdict"), ("", "measured"), ("", "bound"), ("", "evidence"), ("", "s")]
    seconds = {row.verdict.check: f"{row.seconds:.1f}" for row in verification.rows}
    grid(console, header, [_cells(v, seconds.get(v.check, "")) for v in verification.verdicts()], lead=2)
    console.print()
    # What must catch a defect is read first.
    expected_first = sorted(verification.verdicts(), key=lambda verdict: verdict.check not in verification.caught_by)
    for verdict in worst_first(expected_first):
        _sentence(verdict, console)
    again = [row.case for row in verification.rows if row.tries > 1]
    if again:
        line(console, f"Driven twice, because the harness was late the first time: {', '.join(again)}.")
    console.print()
    _more(verification, console, beside)


def _cells(verdict: Verdict, seconds: str) -> list[Cell]:
    return [
        Cell(fit(clean(verdict.check), _CHECK_WIDTH)),
        Cell(verdict.word.value, STYLES[verdict.word]),
        Cell(quantity(verdict.measured, "share" if verdict.unit == "share" else "")),
        Cell(quantity(verdict.bound, verdict.unit)),
        Cell(count(verdict.samples)),
        Cell(seconds, "dim"),
    ]


def _sentence(verdict: Verdict, console: Console) -> None:
    said = fit(clean(verdict.check), _CHECK_WIDTH)
    line(console, Cell(f"{verdict.word.value:{_WORD_WIDTH}}", STYLES[verdict.word]), Cell(said, "bold"))
    line(console, clean(verdict.sentence), indent=4)
    if verdict.add:
        line(console, Cell("to add: ", "bold"), clean(verdict.add), indent=4)
    if verdict.witnesses:
        shown = ", ".join(clean(witness, 40) for witness in verdict.witnesses[:8])
        more = f" and {len(verdict.witnesses) - 8} more" if len(verdict.witnesses) > 8 else ""
        line(console, "witnesses: ", Cell(shown, "cyan"), more, indent=4)


def _more(verification: Verification, console: Console, beside: Sequence[str]) -> None:
    driven = [row for row in verification.rows if row.folder is not None]
    telling = [row for row in driven if row.verdict.word is not Word.PASS]
    for row in telling or driven:
        path = row.report or row.folder
        console.print(Text(f"report  {row.case:10} {path}"), soft_wrap=True, highlight=False)
    for told in beside:
        console.print(Text(told), soft_wrap=True, highlight=False)
    if driven:
        first = (telling or driven)[0].folder
        console.print(Text(f"more    overload report {first}"), soft_wrap=True, highlight=False)


def page(verification: Verification, base: Path) -> str:
    """One HTML file. base: the folder that it will lie in; links to the trials' reports are relative to it."""
    style = (files("harness.report") / "assets" / "report.css").read_text("utf-8")
    word = verification.word
    figures = "".join(f'<th class="n">{title}</th>' for title in ("measured", "bound", "evidence"))
    head = f"<th>check</th><th></th>{figures}<th>in a sentence</th><th></th>"
    reports = {row.verdict.check: row.report for row in verification.rows}
    body = [_html_row(v, reports.get(v.check), base) for v in verification.verdicts()]
    caught = verification.catch()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>verification: {word.value} – overload</title><style>{style}</style></head><body>"
        f'<header class="{word.value.lower()}"><p class="word">{chip(word)}</p>'
        f"<h1>{situations(len(verification.rows))} against {esc(verification.target)}</h1>"
        f'<p class="lead">{esc(HEADLINES[word])} Exit code {verification.exit_code}.</p>'
        + (f'<p class="about">{esc(caught, 800)}</p>' if caught else "")
        + f"</header><main>{table(f'<tr>{head}</tr>', body, 'Every check', 'glance')}</main></body></html>\n"
    )


def _html_row(verdict: Verdict, report: Path | None, base: Path) -> str:
    figures = (quantity(verdict.measured, verdict.unit), quantity(verdict.bound, verdict.unit), count(verdict.samples))
    link = f'<a href="{esc(os.path.relpath(report, base), 4_000)}">report</a>' if report is not None else ""
    add = f"<br><strong>To add:</strong> {esc(verdict.add, 600)}" if verdict.add else ""
    names = f"<br>Witnesses: {esc(', '.join(verdict.witnesses), 1_000)}" if verdict.witnesses else ""
    return (
        f"<tr><td><code>{esc(verdict.check)}</code></td><td>{chip(verdict.word)}</td>"
        + "".join(f'<td class="n">{esc(figure)}</td>' for figure in figures)
        + f'<td class="note">{esc(verdict.sentence, 1_000)}{add}{names}</td><td>{link}</td></tr>'
    )


def situations(number: int) -> str:
    return f"{number} situation{'' if number == 1 else 's'}"
