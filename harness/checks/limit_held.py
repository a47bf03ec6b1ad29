"""fairness.limit_held: a tenant is served no more than its limit, whoever answers, and however many there are of them.

A limit of `rate` with bursts of `burst` is a bucket that refills at the rate; each call that is served takes a token:

    served in (s, t]  <=  burst + rate * (t - s)          for every s < t                             [calls]

A limit that is kept in the memory of each replica, worker or process is as many times as large as there are of them.
When the service decided is not known, only that it did so between the call's sending and its answer. So of a window
those calls are counted that were surely decided in it:

    surely in (s, t]  >=  answered by t - sent before s                                           [calls]

and what is over the bound is beyond the limit whatever was decided when: a limit that is held is never called broken.
Nothing that the service says of itself is asked. (For the bucket and its bound: Cruz, "A calculus for network delay",
1991, where it is called a (sigma, rho) regulator.)
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.context import Mask, due_in, profile_of, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, verdict, withheld
from harness.checks.verdict import Finding, Verdict, Word
from harness.ledger.outcomes import COALESCED, SERVED
from harness.ledger.reader import Ints, Trial
from harness.profile.base import Count, Name, Part, RatePerS
from harness.profile.units import NS_PER_S

NAME = "fairness.limit_held"
_ROUNDING = 1e-6
"""Of a call: far above what double precision loses, far below one."""


class Limit(Part):
    """What a tenant may have. burst: the most that is served at one instant; of a limit of n in fixed windows it is
    2 n, for two windows touch."""

    rate: RatePerS
    burst: Count


class Params(Part):
    """limits: tenant -> its limit. over: how much more than the limit may be served, as a share of it. breach: how much
    more must have been asked for, for a limit that is not held to be seen. least: the share of what the limit grants
    that must be served while more is asked for; null: it is not judged.
    """

    limits: dict[Name, Limit] = Field(default_factory=dict)
    over: Annotated[float, Field(ge=0, le=1)] = 0.1
    breach: Annotated[float, Field(gt=0, le=10)] = 0.5
    least: Annotated[float, Field(gt=0, le=1)] | None = None


def judge(trial: Trial, params: Params) -> Verdict:
    known = {name: place for place, name in enumerate(trial.tenants)}
    limits, strangers = params.limits, [name for name in params.limits if name not in known]
    if strangers or not limits:
        what = f"the trial has no tenant {', '.join(strangers)}" if strangers else "it is not said what the limits are"
        add = "the limit of a tenant of the profile: `fairness.limit_held: {limits: {D: {rate: 20/s, burst: 20}}}`"
        return withheld(NAME, what, add)
    trial = trial.by_attempt()  # a limit counts requests
    rules = [rule for name, limit in limits.items() for rule in _rules(trial, name, known[name], limit, params)]
    shown = "; ".join(rule.sentence for rule in rules if rule.sentence)
    return verdict(NAME, rules, f"The limit of {', '.join(limits)} was held: {shown}.")


def _rules(trial: Trial, name: str, tenant: int, limit: Limit, params: Params) -> list[Rule]:
    """Of the trial and of each phase: a burst is not to be thinned out by a calm before it."""
    calls = trial.calls
    mine = (calls.tenant == tenant) & (calls.sent_ns >= 0)
    served = mine & calls.is_outcome(SERVED, COALESCED)
    windows = [(phase, due_in(trial, window)) for phase, window in profile_of(trial).phases.items()]
    parts = [("the trial", np.ones(len(calls), dtype=np.bool_)), *windows]
    rules, asked_enough = [], False
    for part, mask in parts:
        asked_at = calls.sent_ns[mine & mask]
        offered, grants = len(asked_at), granted(asked_at, limit)
        asked_enough |= offered >= (1 + params.breach) * grants > 0
        rules.append(_held(trial, f"{name}, {part}", served & mask, limit, params))
        if params.least is not None and offered > grants:
            # What came before may have emptied the bucket.
            surely = granted(asked_at, limit, full=part == "the trial")
            rules.append(_not_starved(f"{name}, {part}", int((served & mask).sum()), surely, params.least))
    broken = [rule for rule in rules if rule.finding.word is Word.FAIL]
    if broken:  # one sentence a tenant: where it is worst
        return [max(broken, key=lambda rule: rule.finding.measured or 0.0), *(r for r in rules if r not in broken)]
    if not asked_enough:
        return [*rules, _too_little(name, int(mine.sum()), limit, params)]
    return rules


def _held(trial: Trial, subject: str, served: Mask, limit: Limit, params: Params) -> Rule:
    n, calls = int(served.sum()), trial.calls
    allowed = n - beyond(calls.sent_ns[served], calls.done_ns[served], limit)
    times = n / allowed if allowed else 0.0
    shown = f"rate {float(limit.rate):.4g}/s, burst {limit.burst}"
    word = Word.FAIL if times > 1 + params.over else Word.PASS
    sentence = f"{subject}: {n} served where the limit ({shown}) allows {allowed}"
    note = ""
    if word is Word.FAIL:
        note = (
            f"{sentence}, {times:.2f} times as many; a limit that each replica or worker keeps for itself is "
            "as many times as large as there are of them"
        )
    finding = Finding(subject, "served, of its limit", word, times, None, None, 1 + params.over, "times", n, note)
    # Without a sentence a rule that was kept is not told again in the PASS of all.
    ids = witnesses(trial, served) if word is Word.FAIL else ()
    return Rule(finding, note or (sentence if subject.endswith("the trial") else ""), ids)


def _not_starved(subject: str, had: int, grants: int, least: float) -> Rule:
    share = had / grants if grants else 1.0
    word = Word.FAIL if share < least else Word.PASS
    sentence = (
        f"{subject}: served {had} of the {grants} that its limit grants to what it asked for ({share:.0%}, at least "
        f"{least:.0%}): the limit takes more than it says, as one that counts refused calls, too"
    )
    note = sentence if word is Word.FAIL else "at least"
    finding = Finding(
        subject, "served, of what its limit grants", word, share, None, None, least, "share", grants, note
    )
    return Rule(finding, sentence if word is Word.FAIL else "")


def _too_little(name: str, offered: int, limit: Limit, params: Params) -> Rule:
    need = float(limit.rate) * (1 + params.breach)
    sentence = f"{name} asked for too little ({offered} calls) for a limit that is not held to be seen"
    finding = Finding(
        name, "asked for", Word.INCONCLUSIVE, float(offered), None, None, None, "calls", offered, sentence
    )
    add = f"let {name} ask for well over {need:.4g}/s for longer than its burst of {limit.burst} lasts"
    return Rule(finding, sentence, (), add, True)


def beyond(from_ns: Ints, to_ns: Ints, limit: Limit) -> int:
    """How many calls at least, each decided at some instant of [from, to], were let through beyond the limit: the most
    over any window."""
    if not len(from_ns):
        return 0
    rate_per_ns = float(limit.rate) / NS_PER_S
    begins, ends = np.sort(from_ns), np.sort(to_ns)
    before = np.searchsorted(begins, begins, side="left") - begins * rate_per_ns  # sent before s, for each s
    answered = np.arange(1, len(ends) + 1) - ends * rate_per_ns
    best = np.minimum.accumulate(before)[np.searchsorted(begins, ends, side="right") - 1]  # over every s <= t
    return max(0, math.ceil(float((answered - best).max()) - limit.burst - _ROUNDING))


def granted(at_ns: Ints, limit: Limit, full: bool = True) -> int:
    """How many of the calls that ask at these instants a bucket of this limit lets through, which is full or empty
    before the first."""
    flow, token = limit.rate.numerator, NS_PER_S * limit.rate.denominator
    most = limit.burst * token
    level, now, count = most if full else 0, None, 0
    for at in np.sort(at_ns).tolist():
        level = min(most, level + (at - (at if now is None else now)) * flow)
        now = at
        if level >= token:
            level -= token
            count += 1
    return count


CHECKS[NAME] = Check(
    NAME,
    "a tenant is served no more than its limit, however many replicas answer it",
    "the limit, and a tenant that asks for at least half as much again",
    Params,
    judge,
)
