"""fairness.refusals_structured: a refused caller is told so, at once, in a form that a program can act on.

A refusal is 429 with a Retry-After that can be read (RFC 9110: seconds or a date) and a typed body, given fast. It is
never a hang and never a 5xx. One that is not so is a FAIL, whatever the others are; PASS needs enough refusals to have
met a breach of one in twenty. A call that expired in the queue, or whose caller gave up, was not refused; one that the
service says has expired, before half of its patience was over, did not expire: it was refused, by another name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.context import Mask, profile_of, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import (
    ABANDONED,
    BUDGET_EXHAUSTED,
    DEPENDENCY_UNAVAILABLE,
    EXPIRED,
    FAILED,
    NEVER_SENT,
    OPEN,
    THROTTLED,
)
from harness.ledger.reader import Trial, attempt_key, read_decisions
from harness.ledger.stalls import stalls_on_the_way
from harness.measure.intervals import lossless_needs, wilson, z_of
from harness.measure.retry_after import parse
from harness.profile.base import DurationNs, Part

NAME = "fairness.refusals_structured"
REFUSALS = (THROTTLED, BUDGET_EXHAUSTED, DEPENDENCY_UNAVAILABLE)


class Params(Part):
    """within: a refusal later than this after it was sent is slow. breach: the share of refusals that may be slow, and
    the size of breach that the evidence must have been able to show. unanswered: share of calls sent that may end
    without an answer. retry_after, typed_body: whether they are asked for.
    """

    within: DurationNs = 500_000_000
    breach: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    unanswered: Annotated[float, Field(ge=0, lt=1)] = 0.001
    retry_after: bool = True
    typed_body: bool = True
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """refused: turned away with an answer. server_error: a 5xx. hung: refused by the service, not told to the caller by
    the time that it gave up. unanswered: sent, and no answer. silent: open, and nobody knows what the service decided.
    """

    sent: Mask
    refused: Mask
    server_error: Mask
    hung: Mask
    unanswered: Mask
    silent: Mask


def judge(trial: Trial, params: Params) -> Verdict:
    trial = trial.by_attempt()  # each answer counts, also of a call that was then tried again
    seen = _seen(trial)
    turned_away = seen.refused | seen.server_error | seen.hung
    n = int(turned_away.sum())
    rules = _rules(trial, params, seen)
    findings = [_exact(quantity, mask, n) for quantity, mask in rules]
    findings += [_unanswered(seen, params), _fast(trial, params, seen)]
    broken = [(finding, mask) for finding, (_, mask) in zip(findings, rules, strict=False) if finding.word is Word.FAIL]
    failed = next((finding for finding in findings if finding.word is Word.FAIL), None)
    if failed is not None:
        mask = broken[0][1] if broken else seen.unanswered
        if failed is findings[-1]:
            mask = _slow(trial, params, seen)
        count = f"{int(failed.measured or 0)}" if broken else f"{failed.measured or 0:.2%}"
        what = f"{count} of {failed.samples} {failed.subject} {failed.quantity}"
        sentence = f"Refusals are not what a caller can act on: {what}."
        return _verdict(failed, sentence, witnesses(trial, mask), "", findings)
    needs = lossless_needs(params.breach, z_of(params.confidence))
    if n < needs:
        sentence = "Nothing was refused." if not n else f"Only {n} calls were refused, all of them as they should be."
        add = f"load, until at least {needs} calls are refused"
        return Verdict(NAME, Word.INCONCLUSIVE, None, None, "refusals", n, sentence, (), add, tuple(findings))
    if seen.silent.sum() > params.unanswered * seen.sent.sum():
        sentence = f"{int(seen.silent.sum())} calls were open at the end, and nobody tells whether they waited or hung."
        add = "a longer drain, a patience, or a target whose decisions can be read"
        ids = witnesses(trial, seen.silent)
        return Verdict(NAME, Word.INCONCLUSIVE, None, None, "refusals", n, sentence, ids, add, tuple(findings))
    slow = findings[-1]
    if slow.word is Word.INCONCLUSIVE:
        sentence = f"Cannot tell whether refusals are fast: {slow.note}."
        return _verdict(slow, sentence, witnesses(trial, _slow(trial, params, seen)), slow.note, findings)
    sentence = f"All {n} refusals were 429 with a readable Retry-After and a typed body, given fast."
    return _verdict(slow, sentence, (), "", findings)


def _verdict(deciding: Finding, sentence: str, ids: tuple[str, ...], add: str, findings: list[Finding]) -> Verdict:
    return Verdict(
        NAME, deciding.word, deciding.measured, deciding.bound, deciding.unit, deciding.samples, sentence, ids, add,
        tuple(findings),
    )  # fmt: skip


def _seen(trial: Trial) -> _Seen:
    calls = trial.calls
    # What a run is told of its steps is judged by the checks of the capacity layer: there, a dependency may be away.
    sent = ~calls.is_outcome(*NEVER_SENT) & (calls.action.codes < 0)
    gave_up = calls.is_outcome(ABANDONED, OPEN)
    server_error = sent & (calls.status >= 500) & (calls.status <= 599) & ~calls.is_outcome(EXPIRED, ABANDONED)
    decisions = read_decisions(trial)
    hung, silent = np.zeros(len(calls), dtype=np.bool_), np.zeros(len(calls), dtype=np.bool_)
    if decisions is not None:
        ours = attempt_key(calls.tenant, calls.seq, calls.attempt)
        hung = sent & gave_up & np.isin(ours, decisions.key[decisions.is_outcome(THROTTLED)])
    else:
        silent = sent & calls.is_outcome(OPEN)
    unanswered = sent & calls.is_outcome(FAILED) & (calls.status <= 0)
    refused = sent & (calls.is_outcome(*REFUSALS) | _said_expired_too_soon(trial))
    return _Seen(sent, refused, server_error, hung, unanswered, silent)


def _said_expired_too_soon(trial: Trial) -> Mask:
    """Answered as if the caller's patience, which the service was told, were over."""
    calls, profile = trial.calls, profile_of(trial)
    patience = np.array([profile.patience_of(name) or 0 for name in trial.tenants], dtype=np.int64)[calls.tenant]
    answered = calls.is_outcome(ABANDONED) & (calls.status > 0)
    return np.asarray(answered & (2 * (calls.done_ns - calls.sent_ns) < patience))


def _rules(trial: Trial, params: Params, seen: _Seen) -> list[tuple[str, Mask]]:
    """What may not happen even once."""
    calls = trial.calls
    rules = [
        ("answered with a 5xx", seen.server_error),
        ("refused by the service, and never told", seen.hung),
        ("refused with another status than 429", seen.refused & ~seen.server_error & (calls.status != 429)),
    ]
    if params.retry_after:
        # One parse for each distinct header; the last place is for calls without one.
        usable = np.array([parse(text).usable for text in [*calls.retry_after.table, None]], dtype=np.bool_)
        rules.append(("without a readable Retry-After", seen.refused & ~usable[calls.retry_after.codes]))
    if params.typed_body:
        rules.append(("without a typed body", seen.refused & (calls.untyped == 1)))
    return rules


def _exact(quantity: str, mask: Mask, n: int) -> Finding:
    count = int(mask.sum())
    word = Word.FAIL if count else Word.PASS
    return Finding("refusals", quantity, word, float(count), None, None, 0.0, "refusals", n)


def _unanswered(seen: _Seen, params: Params) -> Finding:
    n = int(seen.sent.sum())
    share = int(seen.unanswered.sum()) / n if n else 0.0
    word = Word.FAIL if share > params.unanswered else Word.PASS
    return Finding("calls", "ended without an answer", word, share, None, None, params.unanswered, "share", n)


def _slow(trial: Trial, params: Params, seen: _Seen) -> Mask:
    lived = stalls_on_the_way(trial).lived_all
    return np.asarray(seen.refused & (lived(trial.calls.done_ns) - lived(trial.calls.sent_ns) > params.within))


def _fast(trial: Trial, params: Params, seen: _Seen) -> Finding:
    """The share of slow refusals, with its interval, against `breach`."""
    n, slow = int(seen.refused.sum()), int(_slow(trial, params, seen).sum())
    z = z_of(params.confidence)
    interval = wilson(slow, n, z)
    word, note = Word.INCONCLUSIVE, f"{slow} of {n} came later than {params.within / 1e6:g} ms"
    if interval.high < params.breach:
        word = Word.PASS
    elif interval.low > params.breach:
        word = Word.FAIL
    ends = interval.estimate, interval.low, interval.high
    return Finding("refusals", "given slowly", word, *ends, params.breach, "share", n, note)


CHECKS[NAME] = Check(
    NAME,
    "a refusal is 429 with a readable Retry-After and a typed body, given fast; no hang, no 5xx",
    "at least 52 refusals; the service's decisions, to tell a hang from a wait",
    Params,
    judge,
)
