"""When a caller tries the same call again: retries under a budget, and a refusal that is taken as a result.

Source: Site Reliability Engineering (2016), chapter 21: at most three attempts a request, and a client retries only as
long as its retries are below a tenth of its requests. Backoff alone bounds nothing: it only lets retries pile up later.

    retries + 1 <= share * requests                          counts of the last `window`; requests: first attempts

The n-th retry waits delay * 2^(n - 1), times 0.5 to 1.5 by chance, and never less than what Retry-After says. After a
Retry-After in the form of a date there is no retry: nobody here knows the service's date. Nothing is retried that would
be due at or after the end of the trial.

`WaitOnce`: a refusal reaches the model as data ("busy, try again in 2 s"): it waits for just that, tries once, and
makes no other plan of it. A refusal that states no delay is not tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random

from harness.ledger.call import Call
from harness.ledger.outcomes import REFUSED
from harness.measure.retry_after import parse
from harness.workload.recent import RecentCounts

NS_PER_S = 1_000_000_000
FIRST, RETRIES = 0, 1


@dataclass(frozen=True, slots=True)
class RetryRule:
    """attempts: most of one call. share: retries over first attempts, at most; None: no budget. on: outcomes."""

    attempts: int
    delay_ns: int
    on: frozenset[str]
    share: Fraction | None = None
    window_ns: int = 10 * NS_PER_S


class RetryBudget:
    """One client's."""

    def __init__(self, share: Fraction, window_ns: int) -> None:
        self.share = share
        self.counts = RecentCounts(window_ns)

    def sent(self, now_ns: int) -> None:
        """A first attempt leaves."""
        self.counts.add(FIRST, now_ns)

    def grants(self, now_ns: int) -> bool:
        """Whether one retry more is within the budget; it is then taken."""
        first, retries = self.counts.totals(now_ns)
        if (retries + 1) * self.share.denominator > first * self.share.numerator:
            return False
        self.counts.add(RETRIES, now_ns)
        return True


class Retries:
    """One client's. Its parts are attributes, so that a defect can replace one: `rule`, `budget`."""

    def __init__(self, rule: RetryRule, rng: Random) -> None:
        self.rule = rule
        self.budget = RetryBudget(rule.share, rule.window_ns) if rule.share is not None else None
        self.rng = rng

    def sent(self, call: Call, now_ns: int) -> None:
        if self.budget is not None and call.attempt == 1:
            self.budget.sent(now_ns)

    def again_ns(self, call: Call, end_ns: int) -> int | None:
        """When the next attempt of a call that has ended is due; None: this was the last."""
        if call.outcome not in self.rule.on or call.attempt >= self.rule.attempts:
            return None
        due_ns = self.due_ns(call)
        if due_ns is None or due_ns >= end_ns:
            return None
        return due_ns if self.budget is None or self.budget.grants(call.done_ns) else None

    def due_ns(self, call: Call) -> int | None:
        stated_ns = stated_wait_ns(call.retry_after)
        if stated_ns is None:
            return None
        backoff_ns = self.rule.delay_ns * 2 ** (call.attempt - 1) * (0.5 + self.rng.random())
        return call.done_ns + max(int(backoff_ns), stated_ns)


class WaitOnce:
    """The follow-up of an agent to whom a refusal is a result."""

    def sent(self, call: Call, now_ns: int) -> None:
        """Nothing to count."""

    def again_ns(self, call: Call, end_ns: int) -> int | None:
        """When the one further attempt is due; None: this was the last."""
        if call.attempt > 1 or call.outcome not in REFUSED or not call.retry_after:
            return None
        stated_ns = stated_wait_ns(call.retry_after)
        if stated_ns is None or call.done_ns + stated_ns >= end_ns:
            return None
        return call.done_ns + stated_ns


def stated_wait_ns(header: str | None) -> int | None:
    """What Retry-After asks for; 0 if it says nothing that can be read; None for a date, which nobody here can count
    from."""
    stated = parse(header)
    if stated.kind == "date":
        return None
    return round(stated.delay_s * NS_PER_S) if stated.kind == "delay" else 0
