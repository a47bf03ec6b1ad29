"""A verification as plain values: a row a situation, a row for each check of the trials themselves, one word for all.

Filled by harness/verify.py; shown by verification_view.py and junit.py, and as JSON here. Keys of the document:

    schema, target, defect, caught_by, time_scale, exit_code
    verdict   the word that counts
    checks    [{case, check, word, measured, bound, unit, samples, sentence, add, witnesses, about, trial, report,
              tries, seconds, defect}]: the check that each situation is there for; paths are null if it was not driven;
              tries: 2 if the harness was late the first time; defect: whether it was laid over this one
    trials    [{check, word, measured, bound, unit, samples, sentence, add, witnesses}]: the worst over all trials
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.checks.verdict import EXIT_CODES, Verdict, Word, worst
from harness.report.text import count

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One situation. folder: of its trial; None: it was not driven. tries: how often it was. with_defect: one was laid
    over it."""

    case: str
    about: str
    verdict: Verdict
    folder: Path | None
    report: Path | None
    tries: int
    seconds: float
    with_defect: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """beside: the checks of the trials themselves, the worst verdict of each. word: the worst of everything judged."""

    target: str
    rows: tuple[Row, ...]
    beside: tuple[Verdict, ...]
    word: Word
    defect: str | None = None
    defect_about: str = ""
    caught_by: tuple[str, ...] = ()
    time_scale: float = 1.0

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.word]

    def verdicts(self) -> list[Verdict]:
        """One a check: a situation's own is left out where `beside` has the worst of all trials."""
        of_all = {verdict.check for verdict in self.beside}
        own = [row.verdict for row in self.rows if row.folder is None or row.verdict.check not in of_all]
        return [*own, *self.beside]

    def catch(self) -> str:
        """What became of the defect, in a sentence; empty without one."""
        if self.defect is None:
            return ""
        failed = {verdict.check for verdict in self.verdicts() if verdict.word is Word.FAIL}
        about = f"defect {self.defect}: {self.defect_about.rstrip('.')}."
        if not self.caught_by:
            return f"{about} It is a healthy twin: every check must PASS."
        judged = [check for check in self.caught_by if check in {verdict.check for verdict in self.verdicts()}]
        if not judged:
            return f"{about} None of the checks that must catch it was run ({', '.join(self.caught_by)})."
        caught, missed = [c for c in judged if c in failed], [c for c in judged if c not in failed]
        said = f" Caught by {', '.join(caught)}." if caught else ""
        lost = f" MISSED by {', '.join(missed)}." if missed else ""
        also = sorted(failed - set(judged))
        return f"{about}{said}{lost}" + (f" It breaks, too: {', '.join(also)}." if also else "")


def of_trials(verdicts: Sequence[tuple[str, Verdict]]) -> tuple[Verdict, ...]:
    """Of (situation, verdict) pairs, one verdict a check: the worst, with all the evidence, in order of their names."""
    by_check: dict[str, list[tuple[str, Verdict]]] = {}
    for case, verdict in verdicts:
        by_check.setdefault(verdict.check, []).append((case, verdict))
    return tuple(_worst_of(check, found) for check, found in sorted(by_check.items()))


def _worst_of(check: str, found: list[tuple[str, Verdict]]) -> Verdict:
    word = worst(verdict.word for _, verdict in found)
    mine = [(case, verdict) for case, verdict in found if verdict.word is word]
    case, telling = max(mine, key=lambda pair: _nearness(pair[1])) if word is Word.PASS else mine[0]
    samples = sum(verdict.samples for _, verdict in found)
    if word is Word.PASS:
        said = f"Held in {count(len(found))} {'trial' if len(found) == 1 else 'trials'}; {case}: {telling.sentence}"
    else:
        more = f" And in {count(len(mine) - 1)} more." if len(mine) > 1 else ""
        said = f"{case}: {telling.sentence}{more}"
    return replace(telling, check=check, samples=samples, sentence=said, findings=())


def _nearness(verdict: Verdict) -> float:
    """How near to its bound: the verdict that says most among those that held."""
    if verdict.measured is None or not verdict.bound:
        return 0.0
    return verdict.measured / verdict.bound


def document(verification: Verification) -> dict[str, Any]:
    """For machines. A number that is not there, or is none, is null."""
    return {
        "schema": SCHEMA,
        "target": verification.target,
        "defect": verification.defect,
        "caught_by": list(verification.caught_by),
        "time_scale": verification.time_scale,
        "verdict": verification.word.value,
        "exit_code": verification.exit_code,
        "checks": [_row(row) for row in verification.rows],
        "trials": [_verdict(verdict) for verdict in verification.beside],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        **_verdict(row.verdict),
        "about": row.about,
        "trial": str(row.folder) if row.folder else None,
        "report": str(row.report) if row.report else None,
        "tries": row.tries,
        "seconds": round(row.seconds, 3),
        "defect": row.with_defect,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "check": verdict.check,
        "word": verdict.word.value,
        "measured": _finite(verdict.measured),
        "bound": _finite(verdict.bound),
        "unit": verdict.unit,
        "samples": verdict.samples,
        "sentence": verdict.sentence,
        "add": verdict.add,
        "witnesses": list(verdict.witnesses),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
