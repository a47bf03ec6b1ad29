"""`overload defects`: the kill matrix. Each known defect must be caught by its check, and nothing healthy by any."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from harness import matrix
from harness.bracket import BADLY_PROTECTED, Bracket, bracket_numbered
from harness.cli import options
from harness.cli.interrupting import worker_pool
from harness.cli.output import echo_json
from harness.machine import usable_cores
from harness.matrix import Row
from harness.report import grid
from harness.report.progress import CountProgress
from stub_service.defects.registry import DEFECTS

MOST_JOBS = 2
HEALTHY, TWIN, DEFECT = "healthy", "twin", "defect"


@dataclass(frozen=True, slots=True)
class Line:
    """All trials of one defect, of one twin, or of the healthy service on one profile."""

    kind: str
    name: str
    about: str
    checks: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def right(self) -> bool:
        return all(row.right for row in self.rows)

    @property
    def said(self) -> str:
        """Its check's word, or how often it was not what it must be."""
        if self.right:
            return " ".join(sorted({row.own.word.value for row in self.rows}))
        missed = sum(1 for row in self.rows if row.missed)
        alarms = sum(1 for row in self.rows if row.alarms)
        said = [f"{n} {what}" for n, what in ((missed, "missed"), (alarms, "false alarm")) if n]
        return f"{', '.join(said)} of {len(self.rows)}"

    @property
    def others(self) -> tuple[str, ...]:
        """Checks beside its own that failed it."""
        found = {check: None for row in self.rows for check in row.also}
        return (*found, *(f"{check} (!)" for check in {v.check: None for row in self.rows for v in row.alarms}))


@click.command()
@click.option("--only", metavar="NAME,NAME", help="Only these defects, or those of these checks: v07,circuit_for_all.")
@click.option("--seeds", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N",
              help="Trials of each; from the second on with other draws and phases.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), default=min(MOST_JOBS, usable_cores()), show_default=True,
              help="Processes.")  # fmt: skip
@options.json_option
def command(only: str | None, seeds: int, jobs: int, as_json: bool) -> int:
    """Show that every check can fail: lay each known defect over the bundled service, in virtual time, and judge it.

    Each defect must be caught by the check that is there for it. The healthy service, and twins that look suspicious
    and are right, must pass everything. Of fairness.recovers the bracket is run, too: a badly protected service must
    recover from the smaller triggers and collapse under the largest. Exit code 0 if nothing was missed and nothing was
    a false alarm, else 1.

    \b
    Examples:
      overload defects                                   about two minutes
      overload defects --only v07
      overload defects --only three_layer_retry --seeds 20
      overload defects --json
    """
    words = [word.strip() for word in only.split(",") if word.strip()] if only is not None else []
    cells = matrix.jobs(words, seeds)
    with worker_pool(jobs) as pool, CountProgress("defects", len(cells), Console(file=sys.stderr)) as advance:
        rows = []
        for row in pool.map(matrix.judge_job, cells):
            rows.append(row)
            advance()
        asked = {cell.number for cell in cells if cell.defect == BADLY_PROTECTED}
        brackets = list(pool.map(bracket_numbered, sorted(asked)))
    lines = lines_of(rows)
    code = 0 if all(line.right for line in lines) and not any(one.broken() for one in brackets) else 1
    if as_json:
        document = {"exit_code": code, "seeds": seeds, "rows": [line_json(line) for line in lines]}
        echo_json(document | {"brackets": [bracket_json(one) for one in brackets]})
    else:
        show(lines, Console())
        show_brackets(brackets, Console())
    return code


def lines_of(rows: Sequence[Row]) -> list[Line]:
    """Rows of one defect, or of the healthy service on one profile, together."""
    found: dict[tuple[str | None, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.job.defect, row.profile].append(row)
    return [_line(name, tuple(of_it)) for (name, _), of_it in found.items()]


def _line(name: str | None, rows: tuple[Row, ...]) -> Line:
    first = rows[0]
    if name is None:
        return Line(HEALTHY, first.profile, first.about, (first.own.check,), rows)
    defect = DEFECTS[name]
    kind = TWIN if defect.healthy else DEFECT
    about = defect.about.removeprefix("twin: ")
    return Line(kind, name, about, defect.caught_by or defect.twin_of, rows)


def show(lines: Sequence[Line], console: Console) -> None:
    """A line or two for each, what went wrong in full, and one sentence. Elsewhere than on a terminal one line each."""
    for kind, title in ((HEALTHY, "healthy, by profile"), (TWIN, "healthy twins"), (DEFECT, "defects")):
        mine = [line for line in lines if line.kind == kind]
        if mine and console.is_terminal:
            grid.line(console, grid.Cell(title, "bold"))
        for line in mine:
            _show_line(line, console)
    for sentence in wrong(lines):
        console.print(Text(sentence), soft_wrap=True)
    console.print(summary(lines))


def _show_line(line: Line, console: Console) -> None:
    said = grid.Cell(f"{line.said:<13}", "" if line.right else "bold red")
    name = f"{line.name:<34}  {', '.join(line.checks)}"
    others = f", and {', '.join(line.others)}" if line.others else ""
    if not console.is_terminal:
        grid.line(console, f"{line.kind:<8}", said, name, others, f"  ({line.about})" if line.about else "")
        return
    grid.line(console, said, name, others, indent=2)
    if line.about:
        grid.line(console, grid.Cell(line.about, "dim"), indent=15)


def wrong(lines: Sequence[Line]) -> Iterator[str]:
    """A sentence for each trial that came out otherwise, with how to see it."""
    for line in lines:
        for row in line.rows:
            how = f"{line.name}, trial {row.job.number}"
            yield from (f"MISSED       {how}: {check} did not fail it" for check in row.missed)
            yield from (f"FALSE ALARM  {how}: {v.check} {v.word.value}: {v.sentence}" for v in row.alarms)


def summary(lines: Sequence[Line]) -> str:
    defects = [line for line in lines if line.kind == DEFECT]
    others = [line for line in lines if line.kind != DEFECT]
    missed = sum(1 for line in defects for row in line.rows if row.missed)
    alarms = sum(1 for line in lines for row in line.rows if row.alarms)
    trials = sum(len(line.rows) for line in lines)
    return (
        f"{len(defects)} defects and {len(others)} healthy ones in {trials} trials: "
        f"{missed or 'none'} missed, {alarms or 'no'} false {'alarm' if alarms == 1 else 'alarms'}"
    )


def show_brackets(brackets: Sequence[Bracket], console: Console) -> None:
    """What the badly protected service does under each trigger, smallest first, and what is not as it must be."""
    for place, steps in enumerate(zip(*(one.steps for one in brackets), strict=True)):
        healthy = "/".join(sorted({step.healthy.word.value for step in steps}))
        unprotected = "/".join(sorted({step.unprotected.word.value for step in steps}))
        said = f"{steps[0].trigger}: healthy {healthy}, badly protected {unprotected}"
        grid.line(console, "bracket ", said + (" (must collapse)" if place == len(brackets[0].steps) - 1 else ""))
    for number, one in enumerate(brackets):
        for sentence in one.broken():
            console.print(Text(f"BRACKET      trial {number}: {sentence}"), soft_wrap=True)


def bracket_json(one: Bracket) -> dict[str, Any]:
    return {
        "broken": list(one.broken()),
        "steps": [
            {"trigger": s.trigger, "healthy": s.healthy.word.value, "badly_protected": s.unprotected.word.value}
            for s in one.steps
        ],
    }


def line_json(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "kind": line.kind,
        "about": line.about,
        "checks": list(line.checks),
        "right": line.right,
        "trials": [
            {
                "number": row.job.number,
                "profile": row.profile,
                "verdict": row.own.word.value,
                "sentence": row.own.sentence,
                "missed": list(row.missed),
                "false_alarms": [
                    {"check": v.check, "verdict": v.word.value, "sentence": v.sentence} for v in row.alarms
                ],
                "also_failed": list(row.also),
                "passed": list(row.passed),
            }
            for row in line.rows
        ],
    }
