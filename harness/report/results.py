"""What a command found, in one shape for all that a CI reads: JUnit, Markdown, annotations.

A case is a verdict with where it comes from. Filled from a verification, from trials, or from a comparison with a
baseline (harness/baseline/view.py); nothing here judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.checks.verdict import EXIT_CODES, Verdict, Word, worst
from harness.ledger.reader import Trial
from harness.report.notes import HEADLINES, title_of
from harness.report.verification import Verification


@dataclass(frozen=True, slots=True)
class Case:
    """situation: whose trial it is of, where there are several. folder: of that trial."""

    verdict: Verdict
    seconds: float = 0.0
    folder: str = ""
    situation: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """name: of the command. about: what was judged, in a line. properties: for machines."""

    name: str
    about: str
    word: Word
    headline: str
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.word]


def of_verification(found: Verification) -> Results:
    seconds = {row.verdict.check: row.seconds for row in found.rows}
    folders = {row.verdict.check: str(row.folder) for row in found.rows if row.folder is not None}
    cases = tuple(
        Case(verdict, seconds.get(verdict.check, 0.0), folders.get(verdict.check, "")) for verdict in found.verdicts()
    )
    several = "situation" if len(found.rows) == 1 else "situations"
    return Results(
        "overload verify",
        f"{len(found.rows)} {several} against {found.target}",
        found.word,
        HEADLINES[found.word],
        cases,
        (found.catch(),) if found.defect else (),
        {"target": found.target, "defect": found.defect or ""},
        sum(seconds.values()),
    )


def of_trials(name: str, judged: Sequence[tuple[Trial, Sequence[Verdict], Mapping[str, Path]]]) -> Results:
    """Of (trial, its verdicts, files written about it)."""
    several = len(judged) > 1
    cases = []
    for trial, verdicts, _ in judged:
        profile = trial.manifest["profile"].get("name", "trial")
        variant = trial.manifest.get("variant")
        situation = f"{profile}-{variant}" if variant else str(profile)
        seconds = _seconds(trial.manifest)
        for place, verdict in enumerate(verdicts):
            # The time of a trial is told once: whoever adds the cases up gets the time of all trials.
            cases.append(Case(verdict, 0.0 if place else seconds, str(trial.folder), situation if several else ""))
    word = worst(case.verdict.word for case in cases)
    pages = tuple(f"report: {path}" for _, _, files in judged for path in files.values() if path.suffix == ".html")
    about = "; ".join(title_of(trial.manifest) for trial, _, _ in judged)
    total = sum(case.seconds for case in cases)
    target = next((str((t.manifest.get("target") or {}).get("url") or "") for t, _, _ in judged), "")
    return Results(name, about, word, HEADLINES[word], tuple(cases), pages, {"target": target}, total)


def _seconds(manifest: Mapping[str, Any]) -> float:
    ended = manifest.get("ended") or {}
    at_ns = ended.get("at_ns")
    return at_ns / 1e9 if isinstance(at_ns, int) else 0.0
