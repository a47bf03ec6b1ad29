"""The report on a real caller: verdicts first, then who retried, how often and how soon; for people and for machines.

What it shows of headers, paths and commands came from a stranger's program: everything is made safe to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from harness.callers.judge import Judged
from harness.callers.table import Row, rows_of
from harness.checks.verdict import worst
from harness.report.grid import Cell, grid, line
from harness.report.json_report import finite, verdict_json
from harness.report.notes import overall, worst_first
from harness.report.terminal import STYLES, show_verdict
from harness.report.text import MISSING, clean, count, fit

_HEADER = [
    ("", "call"), ("", "calls"), ("", "attempts"), ("", "most"), ("", "served"), ("", "layers"), ("pause", "least"),
    ("pause", "most"), ("", "key"), ("", "effects"), ("", "joined by"),
]  # fmt: skip


def show_callers(judged: Sequence[Judged], console: Console) -> None:
    """All runs, each with its verdicts, and the word that counts for them together."""
    word, code, sentence = overall([verdict for one in judged for verdict in one.verdicts])
    line(console, Cell(word.value, STYLES[word] + " reverse"), Cell("  the caller", "bold"))
    line(console, f"{sentence} {count(len(judged))} scenarios, exit code {code}.")
    for one in judged:
        console.print()
        _show_one(one, console)


def _show_one(one: Judged, console: Console) -> None:
    manifest, word = one.seen.log.manifest, worst(verdict.word for verdict in one.verdicts)
    title = f"  {clean(manifest.scenario, 60)}: {clean(manifest.about, 200)}"
    line(console, Cell(word.value, STYLES[word] + " reverse"), Cell(title, "bold"))
    line(console, f"{count(len(one.seen.work))} arrivals, {count(len(one.seen.calls))} logical calls.{_command(one)}")
    for verdict in worst_first(one.verdicts):
        show_verdict(verdict, console)
    if one.seen.calls:
        console.print()
        grid(console, _HEADER, [_cells(row) for row in rows_of(one.seen.calls)])
    if one.not_judged:
        names = ", ".join(verdict.check.removeprefix("caller.") for verdict in one.not_judged)
        line(console, Cell(f"Not judged, for this scenario gives no evidence of it: {names}.", "dim"))


def _command(one: Judged) -> str:
    command = one.seen.log.manifest.command
    if command is None:
        return ""
    words = clean(" ".join(command.words), 120)
    if command.exit_code is None:
        return f" `{words}` was stopped at its time limit."
    return f" `{words}` ended with exit code {command.exit_code}, which decides nothing."


def _cells(row: Row) -> list[Cell]:
    layers = str(row.owners) if row.owners < 2 else f"{row.owners} ({row.inner} x {row.outer})"
    return [
        Cell(fit(clean(row.what, 200), 44)), Cell(count(row.calls)), Cell(count(row.attempts)), Cell(count(row.most)),
        Cell(count(row.served)), Cell(layers + (" inferred" if row.inferred and row.owners else "")),
        Cell(_pause(row.shortest_s)), Cell(_pause(row.longest_s)), Cell(row.keys), Cell(count(row.effects)),
        Cell(clean(row.by, 60)),
    ]  # fmt: skip


def _pause(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds:.2f} s"


def callers_json(judged: Sequence[Judged]) -> dict[str, Any]:
    """{schema, verdict, runs: [{scenario, about, folder, arrivals, calls, command, verdicts, not_judged, rows}]}, with
    verdicts as in every other report."""
    word, code, sentence = overall([verdict for one in judged for verdict in one.verdicts])
    runs = [
        {
            "folder": one.name,
            "scenario": one.seen.log.manifest.scenario,
            "about": one.seen.log.manifest.about,
            "arrivals": len(one.seen.work),
            "calls": len(one.seen.calls),
            "command": one.seen.log.manifest.command.model_dump() if one.seen.log.manifest.command else None,
            "verdicts": [verdict_json(verdict) for verdict in worst_first(one.verdicts)],
            "not_judged": {verdict.check: verdict.add for verdict in one.not_judged},
            "rows": [asdict(row) for row in rows_of(one.seen.calls)],
        }
        for one in judged
    ]
    document: dict[str, Any] = finite(
        {"schema": 1, "verdict": {"word": word.value, "exit_code": code, "sentence": sentence}, "runs": runs}
    )
    return document
