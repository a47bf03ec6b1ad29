"""`overload explain`: why a check exists, how it judges, and what to do about its verdict."""

from __future__ import annotations

import re
from difflib import get_close_matches

import click
from rich.console import Console

from harness import verify
from harness.callers.judge import CHECKS as CALLERS
from harness.checks import CHECKS
from harness.cli.options import json_option
from harness.cli.output import echo_json
from harness.errors import BadInput
from harness.report.explained import SECTIONS, Explained, explained, names
from harness.report.grid import Cell, grid, line
from harness.report.text import clean
from harness.shipped import shown
from stub_service.defects.registry import DEFECTS, Defect

_JUDGED = SECTIONS[2]


@click.command()
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@json_option
def command(checks: tuple[str, ...], as_json: bool) -> int:
    """Say of a check why it exists, what drives it, how it is judged, and what to do when it fails or cannot tell.

    CHECK is a whole name, or its first word for all of a family. Without one, all are listed. The prose is that of
    docs/checks; parameters, evidence and defects are read from the code.

    \b
    Examples:
      overload explain
      overload explain v07
      overload explain fairness.ordinary_unmoved --json
    """
    console = Console()
    if not checks:
        found = names()
        if as_json:
            echo_json(found)
            return 0
        grid(console, [("", "check"), ("", "what it judges")],
             [[Cell(name, "bold"), Cell(judges)] for name, judges in sorted(found.items())], lead=2)  # fmt: skip
        return 0
    chosen = [explained(name) for name in dict.fromkeys(full for text in checks for full in whole_names(text))]
    if as_json:
        echo_json([document(one) for one in chosen])
        return 0
    for place, one in enumerate(chosen):
        if place:
            console.print()
        show(one, console)
    return 0


def whole_names(text: str) -> list[str]:
    """Raises BadInput with what was perhaps meant."""
    known = names()
    found = [text] if text in known else [name for name in known if text in name.split(".")]
    if not found:
        near = get_close_matches(text, [*known, *(part for name in known for part in name.split("."))], 1, 0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"there is no check '{clean(text, 80)}'{hint} (overload explain lists them)")
    return found


def show(one: Explained, console: Console) -> None:
    line(console, Cell(one.name, "bold"), f": {one.judges}")
    for title in SECTIONS:
        console.print()
        line(console, Cell(title, "bold"))
        _prose(one.sections.get(title, ""), console)
        if title == SECTIONS[1] and (ways := _ways(one.name)):
            line(console, *[Cell(ways, "dim")], indent=2)
        if title == _JUDGED:
            console.print()
            _parameters(one, console)
            _evidence(one, console)
            _defects(one.name, console)


def _prose(text: str, console: Console) -> None:
    """Markdown as it is written, its paragraphs joined and wrapped again; emphasis and code lose their marks."""
    for place, block in enumerate(re.split(r"\n\s*\n", text)):
        if place:
            console.print()
        if block.lstrip().startswith(("|", "```", "- ")):
            for row in block.splitlines():
                if not re.fullmatch(r"[|\s:-]+", row):
                    line(console, _plain(row.strip().strip("|").strip()), indent=2)
        else:
            line(console, _plain(" ".join(block.split())), indent=2)


def _plain(text: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r"\1 (\2)", text)
    return re.sub(r"\*{1,2}([^*]+)\*{1,2}|`([^`]+)`", lambda match: match[1] or match[2], text)


def _ways(name: str) -> str:
    """How to drive it."""
    if name in CALLERS:
        return "overload judge -- COMMAND"
    cases = [case for case in verify.CASES if case.check == name]
    told = [f"overload verify --only {case.name}   ({case.title}; {shown(case.path)})" for case in cases]
    return "; ".join(told)


def _parameters(one: Explained, console: Console) -> None:
    if not one.parameters:
        line(console, "No parameters.", indent=2)
        return
    rows = [[Cell(p.name, "bold"), Cell(p.default), Cell(p.unit, "dim")] for p in one.parameters]
    grid(console, [("", "parameter"), ("", "default"), ("", "unit")], rows, lead=3)
    if one.parameters_say:
        line(console, _plain(one.parameters_say.replace("``", "`")), indent=2)
    console.print()


def _evidence(one: Explained, console: Console) -> None:
    tiers = ", ".join(tier.value for tier in one.tiers) or "answers alone"
    line(console, Cell("Evidence: ", "bold"), f"{one.needs}. A target file must give: {tiers}.", indent=2)


def defects_of(name: str) -> tuple[list[Defect], list[Defect]]:
    """(what it catches, healthy twins that look suspicious to it)."""
    caught = [defect for defect in DEFECTS.values() if name in defect.caught_by]
    twins = [defect for defect in DEFECTS.values() if name in defect.twin_of]
    return caught, twins


def _defects(name: str, console: Console) -> None:
    for title, found in zip(("Catches", "Passes, though it looks suspicious"), defects_of(name), strict=True):
        if found:
            line(console, Cell(f"{title}:", "bold"), indent=2)
            for defect in found:
                line(console, Cell(defect.name, "bold"), f": {defect.about.removeprefix('twin: ')}", indent=4)


def document(one: Explained) -> dict[str, object]:
    caught, twins = defects_of(one.name)
    return {
        "name": one.name,
        "judges": one.judges,
        "sections": {title: one.sections.get(title, "") for title in SECTIONS},
        "parameters": [{"name": p.name, "default": p.default, "unit": p.unit} for p in one.parameters],
        "parameters_say": one.parameters_say,
        "needs": one.needs,
        "tiers": [tier.value for tier in one.tiers],
        "catches": {defect.name: defect.about for defect in caught},
        "twins": {defect.name: defect.about for defect in twins},
        "verify": [case.name for case in verify.CASES if case.check == one.name],
        "always_judged": one.name in ("trial.conserved", "trial.on_time"),
        "registered": "caller" if one.name not in CHECKS else "trial",
    }
