"""What the budgets of a profile grant, replayed from the instants in the ledger: the oracle of the checks of budgets.

A bucket of its own, not the callers': exact, in integers. Several budgets are asked all or nothing. Every attempt asks,
when it is due; what a loop guard held back did not get so far; what a throttle held back had its token already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from harness.checks.attempt_rows import of_tenant
from harness.checks.context import Mask
from harness.ledger.outcomes import HELD_BACK
from harness.ledger.reader import Calls, Ints, Trial
from harness.profile.model import Budget
from harness.profile.units import NS_PER_S

NOT_ASKED = ("loop_iterations", "branch_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Asks:
    """A tenant's, in order of due: places in `Trial.attempts`, whether the caller held them back, and whether the
    replayed budgets grant them."""

    places: Ints
    held: Mask
    allowed: Mask

    @property
    def wrong(self) -> Ints:
        """Those on which caller and budgets disagree."""
        return np.asarray(self.places[self.allowed == self.held])


class _Bucket:
    """level(t) = min(burst, level + rate * (t - t0)), in units of 1 / (10^9 * denominator of the rate) tokens."""

    def __init__(self, budget: Budget, now_ns: int) -> None:
        self._flow, self._token = budget.rate.numerator, NS_PER_S * budget.rate.denominator
        self._most = self._level = budget.burst * self._token
        self._at = now_ns

    def has(self, now_ns: int) -> bool:
        self._level = min(self._most, self._level + max(0, now_ns - self._at) * self._flow)
        self._at = max(self._at, now_ns)
        return self._level >= self._token

    def spend(self) -> None:
        self._level -= self._token


def replay(trial: Trial, name: str, budgets: Sequence[Budget]) -> Asks:
    """Of one instant the budgets grant the first: which of them that was is the caller's order, not the ledger's."""
    calls = trial.attempts
    held_by_guard = np.isin(calls.reason.codes, _codes(calls.reason.table, NOT_ASKED))
    held_back = calls.is_outcome(HELD_BACK)
    places = np.flatnonzero(of_tenant(trial, calls, name) & ~(held_back & held_by_guard))
    held = (held_back & ~np.isin(calls.reason.codes, _codes(calls.reason.table, ("adaptive_throttle",))))[places]
    start_ns = calls.start_ns[places]
    order = np.lexsort((held, start_ns))
    places, held, start_ns = places[order], held[order], start_ns[order]
    return Asks(places, held, grants(budgets, start_ns, calls.run[places]))


def grants(budgets: Sequence[Budget], at_ns: Ints, run: Ints) -> Mask:
    """Which asks the budgets grant; asks in order of time. A run's bucket is full at its first ask."""
    whole = [_Bucket(budget, 0) for budget in budgets if budget.scope == "tenant"]
    own = [budget for budget in budgets if budget.scope == "run"]
    of_run: dict[int, list[_Bucket]] = {}
    granted = []
    for now_ns, of in zip(at_ns.tolist(), run.tolist(), strict=True):
        buckets = whole
        if own:
            if of not in of_run:
                of_run[of] = [_Bucket(budget, now_ns) for budget in own]
            buckets = [*whole, *of_run[of]]
        yes = all(bucket.has(now_ns) for bucket in buckets)
        if yes:
            for bucket in buckets:
                bucket.spend()
        granted.append(yes)
    return np.array(granted, dtype=np.bool_)


def most_beyond(rate: Fraction, sent_ns: Ints) -> float:
    """Most calls sent in any window beyond what the rate allows in it. sent_ns: in order.

    max over i <= j of (j - i + 1) - rate * (t_j - t_i)       [calls]
    """
    if not len(sent_ns):
        return 0.0
    level = np.arange(len(sent_ns)) - float(rate) * (sent_ns - sent_ns[0]) / NS_PER_S
    return float((level + 1 - np.minimum.accumulate(level)).max())


def counted_as_sent(calls: Calls, sent: Ints, late_ns: int) -> Ints:
    """Instants of attempts that were sent, in order. The caller's process held up what left later than `late_ns` after
    it was due: it counts as sent when it might have been, or a stall would look like a burst that no budget granted."""
    return np.sort(np.minimum(calls.sent_ns[sent], calls.start_ns[sent] + late_ns))


def _codes(table: list[str], texts: Sequence[str]) -> list[int]:
    return [place for place, text in enumerate(table) if text in texts]
