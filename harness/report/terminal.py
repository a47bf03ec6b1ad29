"""The report in a terminal: verdicts first, then who got what, tenant by tenant and phase by phase.

Readable at 80 and 200 columns, with and without colour. Where the output is not a terminal: no escape sequence, no
wrapping, a stable line for each fact, so that it can be searched. Never reads markup out of what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import Trial
from harness.report import columns
from harness.report.capacity import capacity_of
from harness.report.capacity_text import show_capacity
from harness.report.grid import Cell, grid, line
from harness.report.notes import named_in, not_observable, overall, title_of, worst_first
from harness.report.summary import WHOLE, Row, Summary, most_hurt_first, summarise
from harness.report.text import MISSING, clean, count, fit, interval, percent, quantity
from harness.report.traffic import traffic_of
from harness.report.variants import FIELDS, SHARES, VariantRow

STYLES = {
    Word.PASS: "bold green",
    Word.FAIL: "bold red",
    Word.INCONCLUSIVE: "bold yellow",
    Word.INVALID: "bold magenta",
}
_MOST_FINDINGS = 8
_MOST_WITNESSES = 8
_MOST_HURT = 12
_BAR = 10
_NAME_WIDTH = 24


def show(trial: Trial, verdicts: Sequence[Verdict], console: Console) -> None:
    """The whole report of a trial. Raises LedgerError if its manifest holds no profile."""
    summary = summarise(trial, keep=named_in(trial, verdicts))
    _headline(trial, verdicts, summary, console)
    for verdict in worst_first(verdicts):
        show_verdict(verdict, console)
    _glance(summary, console)
    _table(summary, console)
    capacity = capacity_of(trial)
    if capacity is not None:
        show_capacity(capacity, console)
    _traffic(trial, console)
    notes = not_observable(trial, summary.frame)
    if notes:
        console.print()
        line(console, Cell("Not observable", "bold"))
        for note in notes:
            line(console, "- " + clean(note), indent=2)


def _headline(trial: Trial, verdicts: Sequence[Verdict], summary: Summary, console: Console) -> None:
    word, code, sentence = overall(verdicts)
    line(console, Cell(word.value, STYLES[word] + " reverse"), Cell(f"  {title_of(trial.manifest)}", "bold"))
    line(console, f"{sentence} {count(summary.calls)} calls, exit code {code}.")


def show_verdict(verdict: Verdict, console: Console) -> None:
    console.print()
    line(console, Cell(verdict.word.value, STYLES[verdict.word]), "  ", Cell(clean(verdict.check, 80), "bold"))
    line(console, clean(verdict.sentence), indent=2)
    line(console, measured_text(verdict.measured, verdict.bound, verdict.unit, verdict.samples), indent=2)
    if verdict.add:
        line(console, Cell("to add: ", "bold"), clean(verdict.add), indent=2)
    telling = [finding for finding in verdict.findings if finding.word is not Word.PASS]
    for finding in telling[:_MOST_FINDINGS]:
        line(console, *_finding(finding), indent=4)
    if len(telling) > _MOST_FINDINGS:
        line(console, f"... and {len(telling) - _MOST_FINDINGS} more findings (all of them: report.html)", indent=4)
    if verdict.witnesses:
        shown = ", ".join(clean(witness, 40) for witness in verdict.witnesses[:_MOST_WITNESSES])
        more = len(verdict.witnesses) - _MOST_WITNESSES
        line(console, "witnesses: ", Cell(shown, "cyan"), f" and {more} more" if more > 0 else "", indent=2)


def measured_text(measured: float | None, bound: float | None, unit: str, samples: int) -> str:
    """`measured 34.2 pp, bound 1 pp, 320 samples`."""
    return f"measured {quantity(measured, unit)}, bound {quantity(bound, unit)}, {count(samples)} samples"


def _finding(finding: Finding) -> list[Cell]:
    ends = interval(finding.low, finding.high, finding.unit)
    within = "" if ends == MISSING else f" [{ends}]"
    said = (
        f" {clean(finding.subject, _NAME_WIDTH)}: {clean(finding.quantity, 60)} "
        f"{quantity(finding.measured, finding.unit)}{within}, "
        f"bound {quantity(finding.bound, finding.unit)}, {count(finding.samples)} samples"
    )
    note = f" ({clean(finding.note, 200)})" if finding.note else ""
    return [Cell(finding.word.value, STYLES[finding.word]), Cell(said), Cell(note, "dim")]


def _glance(summary: Summary, console: Console) -> None:
    """Who was hurt: the served share of each tenant in calm and in burst, the worst ordinary one first."""
    pairs = most_hurt_first(summary)
    if not pairs:
        return
    console.print()
    line(console, Cell("Who was hurt", "bold"))
    header = [("", "tenant"), ("", ""), ("served in calm", "%"), ("served in burst", "%"), ("lost in burst", "refused")]
    header.append(("lost in burst", "gave up"))
    if console.is_terminal:
        header[3:3] = [("served in calm", "")]
        header[5:5] = [("served in burst", "")]
    width = _NAME_WIDTH if console.width >= 120 or not console.is_terminal else _NAME_WIDTH // 2
    rows = [_hurt(calm, burst, width, console.is_terminal) for calm, burst in pairs[:_MOST_HURT]]
    grid(console, header, rows, lead=2)
    if len(pairs) > _MOST_HURT:
        line(console, Cell(f"{count(len(pairs) - _MOST_HURT)} more in the tables below.", "dim"))


def _hurt(calm: Row, burst: Row, width: int, bars: bool) -> list[Cell]:
    cells = [Cell(row_name(calm, width), "bold"), Cell("ordinary" if calm.ordinary else "", "dim")]
    for row in (calm, burst):
        cells.append(Cell(percent(row.served_share).removesuffix(" %")))
        if bars:
            filled = round((row.served_share or 0.0) * _BAR)
            cells.append(Cell("█" * filled + "░" * (_BAR - filled), "cyan" if row.ordinary else "yellow"))
    return [*cells, _number(count(burst.refused), ""), _number(count(burst.abandoned), "")]


def _table(summary: Summary, console: Console) -> None:
    if not summary.rows:
        return
    for group in (columns.COUNTS, columns.TIMES):
        console.print()
        _rows(console, summary.rows, [c for c in group if not console.is_terminal or c.wanted(summary.rows)])
    console.print()
    absent = columns.absent(summary.rows) if console.is_terminal else ""
    for note in (absent, columns.COUNT_NOTE, columns.WAIT_NOTE, columns.THIN_NOTE):
        if note:
            line(console, Cell(note, "dim"))
    if summary.left_out:
        line(console, Cell(f"{count(summary.left_out)} tenants with fewer calls share one row.", "dim"))


def _traffic(trial: Trial, console: Console) -> None:
    traffic = traffic_of(trial)
    if traffic is None:
        return
    console.print()
    line(console, traffic.sentence())
    for sample in traffic.samples:
        line(console, "broken: " + sample, indent=2)


def _rows(console: Console, rows: Sequence[Row], shown: Sequence[columns.Column]) -> None:
    cells: list[list[Cell] | None] = []
    width = _NAME_WIDTH if console.width >= 120 or not console.is_terminal else _NAME_WIDTH // 2
    for row in rows:
        bold = "bold" if row.phase == WHOLE else ""
        name = Cell(row_name(row, width), bold)
        cells.append([name, Cell(row.phase, bold), *(_number(column.cell(row), bold) for column in shown)])
        if row.phase == WHOLE and row is not rows[-1]:
            cells.append(None)
    grid(console, [("", "tenant"), ("", "phase"), *((column.group, column.title) for column in shown)], cells, lead=2)


def row_name(row: Row, width: int = 60) -> str:
    """A tenant's name, safe to show. What is not a tenant is in brackets; a tenant's own bracket is set in quotes."""
    name = fit(clean(row.tenant, 400), width)
    if row.kind != "tenant":
        return f"({name})"
    return f"'{name}'" if name.startswith("(") else name


def _number(text: str, style: str) -> Cell:
    return Cell(text, "dim" if text in ("0", MISSING) else style)


def worked_example_table(rows: Sequence[VariantRow], console: Console) -> None:
    """Variants below each other; under each what was published, and what an ensemble gave."""
    header = [
        ("", "row"),
        ("", "verdict"),
        ("ordinary", "served"),
        ("worst", "ordinary"),
        ("agent", "offers"),
        ("", "re-plans"),
        ("held", "back"),
        ("worker", "seconds"),
    ]
    cells: list[list[Cell] | None] = []
    for row in rows:
        word = Word.__members__.get(row.word or "")
        verdict = Cell(word.value, STYLES[word]) if word else Cell(MISSING, "dim")
        values = row.values()
        cells.append([Cell(clean(row.name, 28), "bold"), verdict, *(_value(f, values[f], "") for f in FIELDS)])
        below = "  " if console.is_terminal else f"{clean(row.name, 28)} "
        if row.published:
            published = [_value(f, row.published.get(f), "dim") for f in FIELDS]
            cells.append([Cell(f"{below}published", "dim"), Cell(""), *published])
        if row.ensemble:
            said = {"median": f"median of {row.trials}", "low": "lowest", "high": "highest"}
            for which, label in said.items():
                spread = [_value(f, getattr(row.ensemble.get(f), which, None), "dim") for f in FIELDS]
                cells.append([Cell(below + label, "dim"), Cell(""), *spread])
        if row is not rows[-1]:
            cells.append(None)
    grid(console, header, cells, lead=2)


def _value(field: str, value: float | None, style: str) -> Cell:
    return Cell(percent(value) if field in SHARES else count(value), style)
