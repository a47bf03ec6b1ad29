"""The token bucket that a caller asks before a call leaves.

    level(t) = min(burst, level(t0) + rate * (t - t0))      [tokens] = [tokens] + [tokens/ns] * [ns]

It refills before it is asked, and is exact: the level is an integer in units of 1 / (10^9 * denominator of the rate)
tokens, so that 10/s asked every 25 ms for 40 s grants 409 and not 408 or 410. It starts full.

Several budgets at once are asked all or nothing (`Budgets`): where one of them refuses, no token is taken from another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

NS_PER_S = 1_000_000_000


class TokenBucket:
    """rate: tokens per second, burst: most tokens it holds. A `now_ns` before the last adds nothing."""

    __slots__ = ("_at_ns", "_full", "_level", "_per_ns", "_token")

    def __init__(self, rate: Fraction, burst: int, now_ns: int = 0) -> None:
        self._per_ns = rate.numerator
        self._token = NS_PER_S * rate.denominator
        self._full = burst * self._token
        self._level = self._full
        self._at_ns = now_ns

    def take(self, now_ns: int) -> bool:
        """Takes one token if there is one; says whether it did."""
        level = self._level
        if now_ns > self._at_ns:
            level = min(self._full, level + (now_ns - self._at_ns) * self._per_ns)
            self._at_ns = now_ns
        if level < self._token:
            self._level = level
            return False
        self._level = level - self._token
        return True

    def give_back(self) -> None:
        """The token that was just taken was not used after all."""
        self._level = min(self._full, self._level + self._token)

    def level(self, now_ns: int) -> Fraction:
        """Tokens at `now_ns`, without taking any."""
        return Fraction(min(self._full, self._level + (now_ns - self._at_ns) * self._per_ns), self._token)


Scope = Literal["tenant", "run"]


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """Tokens per second, most tokens, and what the bucket belongs to: all of the tenant, or each run of it."""

    rate: Fraction
    burst: int
    scope: Scope


class Budgets:
    """Of one tenant: a bucket for itself, one for each of its runs, or both. A run's bucket is full when it begins."""

    def __init__(self, rules: Sequence[BudgetRule]) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.scope))  # a run is asked before its tenant
        self._tenant = {rule: TokenBucket(rule.rate, rule.burst) for rule in self.rules if rule.scope == "tenant"}
        self._of_run: dict[int, dict[BudgetRule, TokenBucket]] = {}

    def refuses(self, run: int, now_ns: int) -> str | None:
        """The scope of the budget that has no token for a call of this run; None: one was taken of each."""
        taken: list[TokenBucket] = []
        for rule in self.rules:
            bucket = self._tenant[rule] if rule.scope == "tenant" else self._bucket_of(run, rule, now_ns)
            if not bucket.take(now_ns):
                for other in taken:
                    other.give_back()
                return rule.scope
            taken.append(bucket)
        return None

    def _bucket_of(self, run: int, rule: BudgetRule, now_ns: int) -> TokenBucket:
        buckets = self._of_run.setdefault(run, {})
        if rule not in buckets:
            buckets[rule] = TokenBucket(rule.rate, rule.burst, now_ns)
        return buckets[rule]

    def run_over(self, run: int) -> None:
        """Forgets what a run had: nothing will be asked for it any more."""
        self._of_run.pop(run, None)
