"""A verdict from several rules, each with its number, its sentence and its witnesses.

    FAIL          the sentences of the rules that were broken, worst evidence first as given
    INCONCLUSIVE  what is missing, and what to add
    PASS          one sentence of what was shown

A rule without samples never passes. Evidence that a rule needs is a rule of its own (`enough`), so that thin evidence
is told apart from a rule that held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.checks.context import MOST_WITNESSES
from harness.checks.verdict import Finding, Verdict, Word, worst
from harness.measure.intervals import Interval

MOST_SENTENCES = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """sentence: what a person is told of a rule that did not pass (no full stop). add: what to add if inconclusive.

    evidence: it says how much there was to see, not what was seen.
    """

    finding: Finding
    sentence: str = ""
    witnesses: tuple[str, ...] = ()
    add: str = ""
    evidence: bool = False


def at_most(
    subject: str, quantity: str, measured: float, bound: float, unit: str, samples: int, sentence: str,
    witnesses: Iterable[str] = (),
) -> Rule:  # fmt: skip
    """Broken if measured > bound. Without samples it says INCONCLUSIVE."""
    word = Word.FAIL if measured > bound else Word.PASS if samples else Word.INCONCLUSIVE
    note = sentence if word is Word.FAIL else "" if samples else "nothing to judge"
    finding = Finding(subject, quantity, word, float(measured), None, None, float(bound), unit, samples, note)
    named = _first(witnesses) if word is Word.FAIL else ()
    return Rule(finding, sentence if samples or word is Word.FAIL else f"{subject}: {quantity}: no evidence", named)


def at_least(
    subject: str, quantity: str, measured: float, bound: float, unit: str, samples: int, sentence: str,
    witnesses: Iterable[str] = (),
) -> Rule:  # fmt: skip
    """Broken if measured < bound. Without samples it says INCONCLUSIVE."""
    word = Word.INCONCLUSIVE if not samples else Word.FAIL if measured < bound else Word.PASS
    note = sentence if word is Word.FAIL else "at least" if samples else "nothing to judge"
    finding = Finding(subject, quantity, word, float(measured), None, None, float(bound), unit, samples, note)
    named = _first(witnesses) if word is Word.FAIL else ()
    return Rule(finding, sentence if samples else f"{subject}: {quantity}: no evidence", named)


def none_of(subject: str, quantity: str, wrong: Sequence[str], samples: int, unit: str, sentence: str) -> Rule:
    """Broken by a single one. wrong: ids."""
    return at_most(subject, quantity, len(wrong), 0, unit, samples, sentence, dict.fromkeys(wrong))


def enough(subject: str, quantity: str, have: int, need: int, unit: str, add: str) -> Rule:
    """Evidence: at least `need`, else INCONCLUSIVE."""
    word = Word.PASS if have >= need else Word.INCONCLUSIVE
    note = "" if have >= need else f"only {have} {unit} where {need} are needed"
    finding = Finding(subject, quantity, word, float(have), None, None, float(need), unit, have, note)
    return Rule(finding, f"{subject}: only {have} of the {need} {unit} needed ({quantity})", (), add, True)


def unmoved(
    subject: str, quantity: str, change: Interval, margin: float, unit: str, samples: int, witnesses: Iterable[str] = ()
) -> Rule:
    """Broken if the whole interval is over the margin, kept if it is under, else it cannot be told."""
    word = Word.PASS if change.high < margin else Word.FAIL if change.low > margin else Word.INCONCLUSIVE
    shown = (
        f"{subject}: {quantity} by {change.estimate:.3g} {unit} "
        f"(interval {change.low:.3g} to {change.high:.3g}; allowed {margin:.3g})"
    )
    ends = change.estimate, change.low, change.high
    note = "" if word is Word.PASS else shown
    finding = Finding(subject, quantity, word, *ends, margin, unit, samples, note)
    add = "more calls in calm and burst: scale rates, workers and limits together, or lengthen both windows"
    return Rule(finding, shown, _first(witnesses) if word is Word.FAIL else (), add)


def withheld(name: str, what: str, add: str) -> Verdict:
    """The evidence that the check cannot do without is not to be had."""
    return Verdict(name, Word.INCONCLUSIVE, None, None, "", 0, f"Cannot be judged: {what}.", add=add)


def verdict(name: str, rules: Sequence[Rule], passed: str) -> Verdict:
    """passed: the sentence of a PASS, which names what was shown."""
    word = worst(rule.finding.word for rule in rules)
    mine = [rule for rule in rules if rule.finding.word is word]
    findings = tuple(rule.finding for rule in rules)
    if not mine:
        return withheld(name, "no rule had anything to look at", "a trial with runs")
    decisive = mine[0].finding if word is not Word.PASS else _nearest(mine).finding
    shown = "; ".join(rule.sentence for rule in mine[:MOST_SENTENCES])
    more = f"; and {len(mine) - MOST_SENTENCES} more" if len(mine) > MOST_SENTENCES else ""
    sentence = {Word.PASS: passed, Word.INCONCLUSIVE: f"Cannot tell: {shown}{more}."}.get(word, f"{shown}{more}.")
    return Verdict(
        name, word, decisive.measured, decisive.bound, decisive.unit, decisive.samples,
        sentence[:1].upper() + sentence[1:],
        _first(w for rule in mine for w in rule.witnesses) if word is Word.FAIL else (),
        "; ".join(dict.fromkeys(rule.add for rule in mine if rule.add)) if word is Word.INCONCLUSIVE else "",
        findings,
    )  # fmt: skip


def _nearest(rules: Sequence[Rule]) -> Rule:
    """Of rules that were kept: the first that is not about evidence."""
    return next((rule for rule in rules if not rule.evidence), rules[0])


def _first(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(list(dict.fromkeys(ids))[:MOST_WITNESSES])
