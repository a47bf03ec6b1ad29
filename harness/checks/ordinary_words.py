"""How `fairness.ordinary_unmoved` tells what it found: which finding decides, its witnesses, and one sentence.

Of several findings the worst word decides, and of one word the one that is farthest beyond its bound, or nearest to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from harness.checks.context import MOST_WITNESSES, witnesses
from harness.checks.ordinary_evidence import POOLED, Gathered
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.reader import Trial

NAME = "fairness.ordinary_unmoved"
SERVED_DOWN, REFUSALS_UP, WAIT_UP, BEYOND_UP = (
    "served share down",
    "refusals up",
    "mean wait up",
    "time beyond the queue wait up",
)


def not_judged(finding: Finding) -> bool:
    return finding.note.startswith("not judged")


def _excess(finding: Finding) -> float:
    """How far beyond (or short of) its bound the deciding end is, in bounds: the largest decides."""
    if finding.bound is None or finding.high is None or finding.low is None:
        return math.inf if finding.word is Word.INCONCLUSIVE else -math.inf
    return (finding.low if finding.word is Word.FAIL else finding.high) / finding.bound


def verdict_of(trial: Trial, found: Gathered, findings: list[Finding], judged: list[Finding]) -> Verdict:
    skipped = [finding.subject for finding in findings if not_judged(finding) and finding.subject != POOLED]
    tenants = {finding.subject for finding in judged} - {POOLED}
    for word in (Word.FAIL, Word.INCONCLUSIVE, Word.PASS):
        decisive = max((f for f in judged if f.word is word), key=_excess, default=None)
        if decisive is not None:
            break
    if decisive is None or (decisive.word is not Word.FAIL and not tenants):
        most = max(findings, key=lambda finding: finding.samples)
        sentence = f"No ordinary tenant has enough calls to be judged{_tail(skipped)}."
        return Verdict(
            NAME, Word.INCONCLUSIVE, None, None, "", most.samples, sentence, add=most.note, findings=tuple(findings)
        )
    return Verdict(
        NAME,
        decisive.word,
        decisive.measured,
        decisive.bound,
        decisive.unit,
        decisive.samples,
        _sentence(decisive, judged, tenants, skipped),
        _witnesses(trial, found, decisive) if decisive.word is Word.FAIL else (),
        decisive.note if decisive.word is Word.INCONCLUSIVE else "",
        tuple(findings),
    )


def _witnesses(trial: Trial, found: Gathered, decisive: Finding) -> tuple[str, ...]:
    """Calls of the burst that were lost or refused, or waited longest."""
    pooled = found.pooled
    mine = pooled.burst.copy()
    if decisive.subject != POOLED:
        mine &= found.tenant == trial.tenants.index(decisive.subject)
    if decisive.quantity == WAIT_UP:
        places = np.flatnonzero(mine & pooled.has_wait)
        longest = places[np.argsort(-pooled.waited_ns[places], kind="stable")[:MOST_WITNESSES]]
        return tuple(trial.calls.id(int(row)) for row in pooled.rows[longest])
    hit = np.zeros(len(trial.calls), dtype=np.bool_)
    hit[pooled.rows[mine & (pooled.refused if decisive.quantity == REFUSALS_UP else pooled.lost)]] = True
    return witnesses(trial, hit)


def _tail(skipped: Iterable[str]) -> str:
    names = list(skipped)
    if not names:
        return ""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f" (not judged, too few calls: {shown})"


def show(finding: Finding) -> str:
    """`served share down by 2.1 points (interval 1.4 to 2.9, allowed 1)`"""
    unit = "points" if finding.unit == "pp" else finding.unit
    digits = 2 if finding.unit == "pp" else 0
    if finding.measured is None or finding.low is None or finding.high is None or finding.bound is None:
        return f"{finding.quantity}: {finding.note}"
    return (
        f"{finding.quantity} by {finding.measured:.{digits}f} {unit} "
        f"(interval {finding.low:.{digits}f} to {finding.high:.{digits}f}; allowed {finding.bound:g})"
    )


def _sentence(decisive: Finding, judged: list[Finding], tenants: set[str], skipped: list[str]) -> str:
    tail = _tail(skipped)
    if decisive.word is Word.FAIL:
        hurt = sorted({f.subject for f in judged if f.word is Word.FAIL} - {POOLED})
        who = f"; hurt: {', '.join(hurt[:5])}" if hurt and decisive.subject == POOLED else ""
        return f"The burst moved {decisive.subject}: {show(decisive)}{who}{tail}."
    if decisive.word is Word.INCONCLUSIVE:
        return f"Cannot tell whether the burst moved {decisive.subject}: {show(decisive)}{tail}."
    return (
        f"The burst moved no ordinary tenant: {len(tenants)} judged one by one and together; nearest to its bound, "
        f"{decisive.subject}, {show(decisive)}{tail}."
    )
