"""Holds a live trial against the simulation of the same profile: are we measuring the thing that we think we are?

Original calls must be the same in number, tenant by tenant: both come from one plan. Where the simulation shows no
overload (nothing refused, nothing abandoned), served share and mean queue wait must agree within the margins. An
overloaded trial is chaotic: one trajectory of it predicts no other, so its figures are reported side by side and not
held against each other.
"""

from __future__ import annotations

import numpy as np

from harness.checks.verdict import Finding, Verdict, Word, worst
from harness.ledger.outcomes import ABANDONED, REFUSED, SERVED
from harness.ledger.reader import Trial

NAME = "trial.agrees_with_simulation"
SHARE_MARGIN = 0.01
WAIT_MARGIN_OF_SERVICE_TIME = 0.25


def agreement(
    live: Trial,
    simulated: Trial,
    share_margin: float = SHARE_MARGIN,
    wait_margin: float = WAIT_MARGIN_OF_SERVICE_TIME,
) -> Verdict:
    """share_margin: largest difference of served shares; wait_margin: of mean queue waits, in mean service times."""
    findings: list[Finding] = []
    overloaded = bool(simulated.calls.is_outcome(*REFUSED, ABANDONED).any())
    service_ns = _mean(simulated.calls.service_ns, simulated.calls.service_ns > 0)
    for index, tenant in enumerate(live.tenants):
        planned = [int(((t.calls.tenant == index) & (t.calls.round == 0)).sum()) for t in (live, simulated)]
        word = Word.PASS if planned[0] == planned[1] else Word.INVALID
        findings.append(_finding(tenant, "original calls", word, planned[0], planned[1], 0.0, "calls", planned[0]))
        shares = [_served_share(t, index) for t in (live, simulated)]
        findings.append(_side_by_side(tenant, "served share", shares, share_margin, "share", overloaded))
        waits = [_mean_wait(t, index) for t in (live, simulated)]
        if service_ns and None not in waits:
            scaled = [wait / service_ns for wait in waits if wait is not None]
            findings.append(_side_by_side(tenant, "mean queue wait", scaled, wait_margin, "service times", overloaded))
    word = worst(finding.word for finding in findings)
    return _verdict(live, findings, word, overloaded)


def _verdict(live: Trial, findings: list[Finding], word: Word, overloaded: bool) -> Verdict:
    apart = [finding for finding in findings if finding.word is not Word.PASS]
    if apart:
        first = apart[0]
        sentence = (
            f"{first.subject}: {first.quantity} is {first.measured} live and {first.low} simulated, "
            f"further apart than {first.bound:g} {first.unit}."
        )
    elif overloaded:
        sentence = "The same original calls; overloaded, so that shares and waits stand side by side, not judged."
    else:
        sentence = "The same original calls, and served shares and waits agree within the margins."
    return Verdict(NAME, word, len(apart), 0, "figures apart", len(live.calls), sentence, findings=tuple(findings))


def _side_by_side(
    tenant: str, quantity: str, pair: list[float | None] | list[float], margin: float, unit: str, overloaded: bool
) -> Finding:
    live, simulated = pair
    if live is None or simulated is None:
        word = Word.PASS if live is simulated else Word.INCONCLUSIVE
    else:
        word = Word.PASS if overloaded or abs(live - simulated) <= margin else Word.FAIL
    return _finding(tenant, quantity, word, live, simulated, margin, unit, 0, "reported only" if overloaded else "")


def _finding(
    tenant: str,
    quantity: str,
    word: Word,
    live: float | None,
    simulated: float | None,
    margin: float,
    unit: str,
    samples: int,
    note: str = "",
) -> Finding:
    """measured: live; low and high: the simulation's figure; bound: how far apart they may be."""
    return Finding(tenant, quantity, word, live, simulated, simulated, margin, unit, samples, note)


def _served_share(trial: Trial, tenant: int) -> float | None:
    mine = trial.calls.tenant == tenant
    total = int(mine.sum())
    return float((trial.calls.is_outcome(SERVED) & mine).sum()) / total if total else None


def _mean_wait(trial: Trial, tenant: int) -> float | None:
    calls = trial.calls
    return _mean(calls.queue_wait_ns, (calls.tenant == tenant) & calls.is_outcome(SERVED) & (calls.queue_wait_ns >= 0))


def _mean(
    values: np.ndarray[tuple[int, ...], np.dtype[np.int64]], where: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> float | None:
    return float(values[where].mean()) if bool(where.any()) else None
