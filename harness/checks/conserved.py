"""trial.conserved: every call that was due, and every re-plan that it led to, ends in exactly one outcome.

The rules are those of harness/ledger/audit.py. Only a contradiction makes the trial INVALID; what cannot be seen (a
target without evidence of its own) is noted.
"""

from __future__ import annotations

from harness.checks.context import profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.audit import audit
from harness.ledger.reader import Trial
from harness.profile.base import Part

NAME = "trial.conserved"


class Params(Part):
    """No bound to set: nothing may be lost."""


def judge(trial: Trial, params: Params) -> Verdict:
    found = audit(trial, profile_of(trial))
    findings = tuple(
        Finding("trial", item.rule, Word.INVALID, float(item.count), None, None, 0.0, "contradictions", found.calls)
        for item in found.contradictions
    )
    broken = sum(item.count for item in found.contradictions)
    if found.contradictions:
        sentence = "The record does not add up: " + "; ".join(item.sentence for item in found.contradictions[:3])
        if len(found.contradictions) > 3:
            sentence += f"; and {len(found.contradictions) - 3} more kinds"
        ids = dict.fromkeys(id_ for item in found.contradictions for id_ in item.witnesses)
        return Verdict(
            NAME, Word.INVALID, broken, 0, "contradictions", found.calls, sentence + ".", tuple(ids)[:20],
            findings=findings,
        )  # fmt: skip
    if not found.calls:
        sentence, add = "No call was due: there is nothing to account for.", "a trial with calls"
        return Verdict(NAME, Word.INCONCLUSIVE, 0, 0, "contradictions", 0, sentence, add=add)
    sentence = f"All {found.calls:,} calls are accounted for, each with one outcome"
    sentence += f" ({'; '.join(found.notes)})." if found.notes else ", and the service's own evidence agrees."
    return Verdict(NAME, Word.PASS, 0, 0, "contradictions", found.calls, sentence)


CHECKS[NAME] = Check(NAME, "nothing is lost between plan, callers and service", "a trial that ended", Params, judge)
