"""How commands show what they found: tables for people, one JSON document for machines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import orjson
from rich.console import Console

from harness.checks import agreement
from harness.checks.verdict import Verdict, exit_code
from harness.cli.outputs import NONE, Outputs
from harness.profile.model import Profile
from harness.report import grid
from harness.report.json_report import report_json
from harness.report.progress import TrialProgress
from harness.report.results import of_trials
from harness.report.terminal import show
from harness.report.text import clean
from harness.trial import Judged


def echo_json(document: Any) -> None:
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def show_judged(judged: Sequence[Judged], as_json: bool, outputs: Outputs = NONE, name: str = "overload") -> int:
    """Shows finished trials, writes what CI reads of them, and returns the exit code of the worst verdict. name: of the
    command."""
    code = exit_code(verdict.word for one in judged for verdict in one.verdicts)
    written: list[str] = []
    if outputs.wanted:
        written = outputs.write(of_trials(name, [(one.trial, one.verdicts, one.files) for one in judged]), as_json)
    if as_json:
        echo_json({"exit_code": code, "trials": [report_json(one.trial, one.verdicts) for one in judged]})
        return code
    console = Console()
    for one in judged:
        show(one.trial, one.verdicts, console)
        for verdict in one.verdicts:
            if verdict.check == agreement.NAME:
                show_side_by_side(verdict, console)
        for path in one.files.values():
            if path.suffix == ".html":
                console.print(f"report  {path}", soft_wrap=True, highlight=False, markup=False)
    for line in written:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return code


def live_progress(profile: Profile, title: str) -> AbstractContextManager[Callable[[dict[str, Any]], None]]:
    """Progress of a live trial on standard error: a live view on a terminal, a line now and then elsewhere."""
    return TrialProgress(profile, title, Console(file=sys.stderr))


def silent() -> AbstractContextManager[Callable[[dict[str, Any]], None]]:
    return nullcontext(lambda event: None)


def show_side_by_side(verdict: Verdict, console: Console) -> None:
    """The figures of a live trial beside those of its simulation."""
    rows = [
        [grid.Cell(clean(f.subject)), grid.Cell(f.quantity), *(grid.Cell(_figure(value, f.unit)) for value in
         (f.measured, f.low)), grid.Cell(f.note or f.word.value)]
        for f in verdict.findings
    ]  # fmt: skip
    header = [("", "tenant"), ("", "figure"), ("", "live"), ("", "simulated"), ("", "judged")]
    grid.grid(console, header, rows, lead=2)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if unit == "calls" else f"{value:.1%}" if unit == "share" else f"{value:.2f} {unit}"
