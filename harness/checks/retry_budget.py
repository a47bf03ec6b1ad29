"""agent.retry_budget: a request has so many attempts and no more, and about a tenth of a client's requests are retries.

For each tenant that retries, in every window (as long as the profile's) that ends with the decision to retry:

    retries <= share * first attempts        of that window, give or take a tenth of it and one retry

Also: no attempt beyond those of a request, and none before what Retry-After says. Source: Site Reliability Engineering
(2016), chapter 21. Backoff alone spreads retries in time; it does not make them fewer.

PASS needs retries that were made, and requests that failed and were let be with attempts left: a budget that never had
to refuse shows nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.attempt_rows import NOT_STATED, before, ids, of_tenant, stated_wait_ns
from harness.checks.context import Mask, profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, none_of, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.reader import Ints, Trial
from harness.profile.base import DurationNs, Part, Share
from harness.profile.model import WINDOW_BUCKETS, Retries

NAME = "agent.retry_budget"


class Params(Part):
    """share: of a client without a budget of its own. over: how far above its budget a window may be, as a share of it.
    retries, let_be: how many there must have been. early: how much before Retry-After is not early."""

    share: Share = Fraction(1, 10)
    over: Annotated[float, Field(ge=0, le=1)] = 0.1
    retries: Annotated[int, Field(ge=1, strict=True)] = 20
    let_be: Annotated[int, Field(ge=1, strict=True)] = 20
    early: DurationNs = 1_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    retrying = {name: tenant.retries for name, tenant in profile.tenants.items() if tenant.retries is not None}
    if not retrying:
        return withheld(NAME, "no tenant retries", "`retries: {attempts: 3, budget: 10%}`")
    rules = [
        rule for name, retries in retrying.items() for rule in _rules(trial, name, retries, profile.duration, params)
    ]
    names = ", ".join(list(retrying)[:5])
    return verdict(
        NAME, rules, f"{names} kept to the attempts of a request and to the budget of retries, in every window."
    )


def _rules(trial: Trial, name: str, rule: Retries, duration_ns: int, params: Params) -> list[Rule]:
    calls = trial.attempts
    mine = of_tenant(trial, calls, name)
    sent = mine & (calls.sent_ns >= 0)
    many = np.flatnonzero(sent & (calls.attempt > rule.attempts))
    share = rule.budget if rule.budget is not None else params.share
    first_ns = np.sort(calls.start_ns[sent & (calls.attempt == 1)])
    retried = np.flatnonzero(mine & trial.retried)
    retried = retried[np.argsort(calls.done_ns[retried], kind="stable")]
    excess, window_share, place = _worst(calls.done_ns[retried], first_ns, share, rule.window, params.over)
    witness = retried[max(0, place - 20) : place + 1]
    again, earlier = before(calls)
    stated = stated_wait_ns(calls)[earlier]
    early = again[mine[again] & (stated != NOT_STATED)
                  & (calls.start_ns[again] < calls.done_ns[earlier] + stated - params.early)]  # fmt: skip
    let_be = _let_be(trial, rule, duration_ns) & mine
    over_all = len(retried) / max(1, len(first_ns))
    return [
        none_of(name, "attempts beyond those of a request", ids(calls, many), int(sent.sum()), "attempts",
                f"{name}: {len(many)} attempts beyond the {rule.attempts} of a request"),
        at_most(name, "retries beyond the budget, worst window", round(excess, 3), 1, "retries", len(retried),
                f"{name}: {window_share:.0%} of the calls of one window were retried, and {over_all:.0%} of all, where "
                f"{float(share):.0%} may be", ids(calls, witness)),
        none_of(name, "before Retry-After", ids(calls, early), len(again), "retries",
                f"{name}: {len(early)} attempts came before the instant that Retry-After states"),
        enough(name, "retries", len(retried), params.retries, "retries", "more calls, and a service that refuses some"),
        enough(name, "failed and let be", int(let_be.sum()), params.let_be, "calls",
               "a service that refuses more than the budget lets be tried again"),
    ]  # fmt: skip


def _worst(decided_ns: Ints, first_ns: Ints, share: Fraction, window_ns: int, over: float) -> tuple[float, float, int]:
    """Over the windows that end with a decision to retry: (most retries beyond the budget and its tolerance, the share
    of that window, which decision it ends with). decided_ns, first_ns: in order. Windows are whole buckets, as the
    callers' are: buckets (b - 60, b]."""
    if not len(decided_ns):
        return 0.0, 0.0, 0
    width = max(1, window_ns // WINDOW_BUCKETS)
    begin = (decided_ns // width - WINDOW_BUCKETS + 1) * width
    retries = np.arange(1, len(decided_ns) + 1) - np.searchsorted(decided_ns, begin)
    first = np.searchsorted(first_ns, decided_ns, side="right") - np.searchsorted(first_ns, begin)
    excess = retries - float(share) * (1 + over) * first
    place = int(np.argmax(excess))
    return float(excess[place]), float(retries[place] / max(1, first[place])), place


def _let_be(trial: Trial, rule: Retries, duration_ns: int) -> Mask:
    """Calls that ended as one that is retried does, with attempts and time left."""
    calls = trial.attempts
    ended = ~trial.retried & calls.is_outcome(*rule.on) & (calls.attempt >= 1) & (calls.attempt < rule.attempts)
    longest = 2 * rule.delay * 2**rule.attempts
    wait = np.maximum(np.maximum(stated_wait_ns(calls), 0), longest)
    return np.asarray(ended & (calls.done_ns + wait < duration_ns))


CHECKS[NAME] = Check(
    NAME,
    "a request has at most so many attempts, and a client's retries stay a small share of its calls in every window",
    "a tenant with `retries`, and a service that refuses more than its budget",
    Params,
    judge,
)
