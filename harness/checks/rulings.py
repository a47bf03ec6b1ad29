"""Rules of the kind `this may never happen`, over steps: broken, kept often enough, or not put to the test.

A rule that was never put to the test proves nothing: below `least` chances to break it, it is INCONCLUSIVE, and says
what to add. One breach is a FAIL, however thin the rest. rules.py makes the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks import rules
from harness.checks.context import MOST_WITNESSES
from harness.checks.rules import Rule
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.evidence import Evidence

Breach = tuple[str, str]
"""(witness: an id of a step, run or dependency; what it did in figures, such as `120 ms late`, or empty)."""


def never(
    subject: str, quantity: str, breaches: Sequence[Breach], seen: int, least: int, add: str, unit: str = "steps"
) -> Rule:
    """quantity: what may not happen, such as `started after its deadline`. seen: chances there were to break it;
    least: how many there must have been. add: what would give more."""
    n = len(breaches)
    word = Word.FAIL if n else Word.INCONCLUSIVE if seen < least else Word.PASS
    sentence = f"{subject}: {n} {unit} {quantity}"
    if n:
        witness, figures = breaches[0]
        sentence += f", out of {seen}" if seen > n else ""
        sentence += f" (first {witness}: {figures})" if figures else f" (first {witness})"
    elif word is Word.INCONCLUSIVE:
        sentence = f"{subject}: only {seen} of the {least} {unit} needed to see whether any {quantity}"
    note = "" if word is Word.PASS else sentence
    witnesses = tuple(list(dict.fromkeys(witness for witness, _ in breaches))[:MOST_WITNESSES])
    finding = Finding(subject, quantity, word, float(n), None, None, 0.0, unit, seen, note)
    return Rule(finding, sentence, witnesses, add)


def noted(subject: str, note: str) -> Rule:
    """Something that a reader must know and that decides nothing."""
    return Rule(Finding(subject, "note", Word.PASS, None, None, None, None, "", 0, note))


_FILES = {
    "decisions": ("has_decisions", "the controller's decisions (decisions.jsonl)"),
    "arrivals": ("has_arrivals", "what reached the dependencies (arrivals.jsonl)"),
    "effects": ("has_effects", "the writes that were committed (effects.jsonl)"),
}


def missing(name: str, evidence: Evidence, *kinds: str) -> Verdict | None:
    """INCONCLUSIVE if the ledger lacks a kind of evidence altogether; None if it is all there."""
    absent = [words for kind in kinds for flag, words in [_FILES[kind]] if not getattr(evidence, flag)]
    if not absent:
        return None
    return rules.withheld(
        name,
        f"the trial does not hold {' or '.join(absent)}",
        "a target that gives this evidence, such as the bundled stub",
    )
