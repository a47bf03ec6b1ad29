"""From rules that were held against the rows to one verdict: a rule is broken, or held often enough, or not seen enough.

A rule that was never put to the test proves nothing: below `least` chances to break it, it is INCONCLUSIVE and says what
to add. One breach is a FAIL, however thin the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.checks.context import MOST_WITNESSES
from harness.checks.verdict import Finding, Verdict, Word, worst
from harness.ledger.evidence import Evidence

Breach = tuple[str, str]
"""(witness: an id of a run, step or dependency; what it did, as the end of a sentence)."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A finding with its witnesses; add: what to add where it is INCONCLUSIVE."""

    finding: Finding
    witnesses: tuple[str, ...] = ()
    add: str = ""


def rule(
    subject: str,
    quantity: str,
    breaches: Sequence[Breach],
    seen: int,
    least: int,
    add: str,
    unit: str = "steps",
) -> Ruling:
    """Nothing of this kind may happen. quantity: what is counted, such as `started after its deadline`. seen: chances
    there were to break it; least: how many there must have been. add: what would give more."""
    n = len(breaches)
    word = Word.FAIL if n else Word.INCONCLUSIVE if seen < least else Word.PASS
    note = f"{n} of {max(seen, n)} {unit} {quantity}"
    if n:
        note += f" (first: {breaches[0][0]}{', ' if breaches[0][1] else ''}{breaches[0][1]})"
    elif word is Word.INCONCLUSIVE:
        note = f"only {seen} of the {least} {unit} needed to see whether any {quantity}"
    return Ruling(
        Finding(subject, quantity, word, float(n), None, None, 0.0, unit, seen, note),
        tuple(dict.fromkeys(witness for witness, _ in breaches)),
        add if word is Word.INCONCLUSIVE else "",
    )


def part(what: str, seen: int, least: int, add: str, unit: str = "steps") -> Ruling:
    """Evidence that has to be there before a PASS means anything. Never a FAIL."""
    word = Word.PASS if seen >= least else Word.INCONCLUSIVE
    note = f"{seen} {unit} {what}" + ("" if word is Word.PASS else f", {least} needed")
    finding = Finding("evidence", what, word, float(seen), None, None, float(least), unit, seen, note)
    return Ruling(finding, (), add if word is Word.INCONCLUSIVE else "")


def noted(subject: str, note: str) -> Ruling:
    """Something that a reader must know and that decides nothing."""
    return Ruling(Finding(subject, "note", Word.PASS, None, None, None, None, "", 0, note))


def conclude(name: str, rulings: Sequence[Ruling], passed: str) -> Verdict:
    """passed: the sentence of a PASS."""
    word = worst(ruling.finding.word for ruling in rulings)
    deciding = [ruling for ruling in rulings if ruling.finding.word is word]
    gate = next((r for r in deciding if r.finding.measured is not None), None)
    witnesses = dict.fromkeys(w for ruling in deciding for w in ruling.witnesses) if word is Word.FAIL else {}
    samples = max((r.finding.samples for r in deciding), default=0)
    return Verdict(
        name,
        word,
        gate.finding.measured if gate else None,
        gate.finding.bound if gate else None,
        gate.finding.unit if gate else "",
        gate.finding.samples if gate and word is not Word.PASS else samples,
        passed if word is Word.PASS else _sentence(word, deciding),
        tuple(witnesses)[:MOST_WITNESSES],
        "; ".join(dict.fromkeys(ruling.add for ruling in deciding if ruling.add)),
        tuple(ruling.finding for ruling in rulings),
    )


def _sentence(word: Word, deciding: Sequence[Ruling]) -> str:
    notes = list(dict.fromkeys(f"{r.finding.subject}: {r.finding.note}" for r in deciding))
    more = f"; and {len(notes) - 3} more" if len(notes) > 3 else ""
    lead = "" if word is Word.FAIL else "Not enough to say: "
    return f"{lead}{'; '.join(notes[:3])}{more}."


_FILES = {
    "decisions": ("has_decisions", "the controller's decisions (decisions.jsonl)"),
    "arrivals": ("has_arrivals", "what reached the dependencies (arrivals.jsonl)"),
    "effects": ("has_effects", "the writes that were committed (effects.jsonl)"),
}


def withheld(name: str, evidence: Evidence, *kinds: str) -> Verdict | None:
    """INCONCLUSIVE if the ledger lacks a kind of evidence altogether; None if it is all there."""
    missing = [words for kind in kinds for flag, words in [_FILES[kind]] if not getattr(evidence, flag)]
    if not missing:
        return None
    sentence = f"This trial does not hold {' or '.join(missing)}, which this check judges by."
    return Verdict(
        name, Word.INCONCLUSIVE, None, None, "", 0, sentence,
        add="a target that gives this evidence: the bundled stub, or one whose evidence sources are described",
    )  # fmt: skip
