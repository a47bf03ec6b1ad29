"""Re-plans as a flow: what became of the calls of each round, and what they led to in the next.

Pure. A call of round k that was not served may be re-planned: calls of round k + 1 then name it as their parent. Of
each round: how many calls, how they ended, how many of them led to others, and to how many. Rounds beyond MOST_ROUNDS
are counted together, and said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.ledger import outcomes as o
from harness.ledger.reader import Trial

MOST_ROUNDS = 8
MOST_TENANTS = 4


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one tenant. replanned: calls that led to others. led_to: how many calls those were.
    The ends: served + refused + abandoned + failed + held_back + other = calls."""

    number: int
    calls: int
    served: int
    refused: int
    abandoned: int
    failed: int
    held_back: int
    other: int
    replanned: int
    led_to: int

    @property
    def growth(self) -> float | None:
        """Calls of the next round for each call of this one."""
        return self.led_to / self.calls if self.calls else None


@dataclass(frozen=True, slots=True)
class Flow:
    """One tenant's rounds, from 0. cut: the last of them holds all deeper rounds, too. traced: whether the ledger says
    which call led to which; else `replanned` is 0 everywhere."""

    tenant: str
    rounds: tuple[Round, ...]
    cut: bool
    traced: bool


def flows_of(trial: Trial) -> tuple[tuple[Flow, ...], int]:
    """(the tenants that re-planned, most re-plans first, at most MOST_TENANTS; how many more did)."""
    calls = trial.calls
    deep = calls.round > 0
    if not deep.any():
        return (), 0
    replans = np.bincount(calls.tenant[deep], minlength=len(trial.tenants))
    order = [int(place) for place in np.argsort(-replans, kind="stable") if replans[place]]
    return tuple(_flow(trial, place) for place in order[:MOST_TENANTS]), max(0, len(order) - MOST_TENANTS)


def _flow(trial: Trial, tenant: int) -> Flow:
    calls = trial.calls
    mine = np.flatnonzero(calls.tenant == tenant)
    deepest = int(calls.round[mine].max())
    number = np.minimum(np.maximum(calls.round[mine], 0), MOST_ROUNDS)
    seq, parent, outcome = calls.seq[mine], calls.parent[mine], calls.outcome[mine]
    # A call's agent run, and a sub-agent's parent, are no re-plans: only calls of a round above 0 count.
    children = parent[(calls.round[mine] > 0) & (parent >= 0)]
    of_parent = np.sort(children)
    led = np.searchsorted(of_parent, seq, side="right") - np.searchsorted(of_parent, seq, side="left")
    rounds = []
    for place in range(min(deepest, MOST_ROUNDS) + 1):
        here = number == place
        rounds.append(_round(place, outcome[here], led[here]))
    return Flow(trial.tenants[tenant], tuple(rounds), deepest > MOST_ROUNDS, bool(len(children)))


def _round(number: int, outcome: Any, led: Any) -> Round:
    counts = dict(zip(o.TERMINAL, np.bincount(outcome, minlength=len(o.TERMINAL)).tolist(), strict=True))
    refused = sum(counts[name] for name in o.REFUSED)
    named = {name: counts[name] for name in (o.SERVED, o.ABANDONED, o.FAILED, o.HELD_BACK)}
    return Round(
        number=number,
        calls=len(outcome),
        served=named[o.SERVED],
        refused=refused,
        abandoned=named[o.ABANDONED],
        failed=named[o.FAILED],
        held_back=named[o.HELD_BACK],
        other=len(outcome) - refused - sum(named.values()),
        replanned=int(np.count_nonzero(led)),
        led_to=int(led.sum()),
    )
