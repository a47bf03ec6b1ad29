"""agent.adaptive_throttle: a client rejects by itself as often as the formula says, and stops when the service is well.

For each tenant with `throttle: {adaptive: ...}`, what the ledger shows at each ask is put into the book's formula

    p_i = max(0, (requests - K accepts) / (requests + 1))          of the last window, before ask i

Given the past, each rejection is a draw with p_i, so the count of them stays near the sum of the p_i (Freedman 1975, a
bound for dependent draws; the binomial is its plain case): with V = sum of p_i (1 - p_i) and L = ln(2 / risk)

    | rejections - sum p_i |  <=  L / 3 + sqrt(L^2 / 9 + 2 V L)

held for the whole trial and for each phase. And after the overload hardly anything is rejected any more: a client that
sent the share s of its calls when it was last refused sends K times as much with each window, so that it needs
log_K (1 / s) of them, and one for its memory. Source of the rule: Site Reliability Engineering (2016), chapter 21.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.checks.attempt_rows import ids, of_tenant
from harness.checks.context import Mask, profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import COALESCED, SERVED
from harness.ledger.reader import Ints, Trial
from harness.profile.base import Part
from harness.profile.model import WINDOW_BUCKETS, Adaptive, Profile

NAME = "agent.adaptive_throttle"
THROTTLED_BY_ITSELF = "adaptive_throttle"
MOST_WINDOWS = 20
"""A client with a K near 1 takes for ever to recover: nobody waits for that."""


class Params(Part):
    """risk: of calling a healthy client wrong, for each window that is judged. expected: rejections that the formula
    must have asked for. recovered: most of the calls that may be rejected after the overload; after: calls there must
    be."""

    risk: Annotated[float, Field(gt=0, lt=0.1)] = 1e-6
    expected: Annotated[int, Field(ge=1, strict=True)] = 50
    recovered: Annotated[float, Field(ge=0, le=1)] = 0.02
    after: Annotated[int, Field(ge=1, strict=True)] = 50


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    throttled = {name: tenant.throttle for name, tenant in profile.tenants.items() if tenant.throttle is not None}
    if not throttled:
        return withheld(NAME, "no tenant throttles itself", "`throttle: {adaptive: {k: 2, window: 120s}}`")
    rules = [
        rule for name, throttle in throttled.items() for rule in _rules(trial, profile, name, throttle.adaptive, params)
    ]
    names = ", ".join(list(throttled)[:5])
    return verdict(NAME, rules, f"{names} rejected as many calls as the formula says, and none to speak of afterwards.")


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A tenant's asks, in order of due. places: in `Trial.attempts`. rejected: by itself. p: as the formula says."""

    places: Ints
    at_ns: Ints
    rejected: Mask
    p: npt.NDArray[np.float64]


def asked(trial: Trial, name: str, rule: Adaptive) -> Asked:
    """What a loop guard or a budget held back never came to be asked."""
    calls = trial.attempts
    sent = calls.sent_ns >= 0
    by_itself = calls.reason.equals(THROTTLED_BY_ITSELF) & ~sent
    mine = of_tenant(trial, calls, name)
    places = np.flatnonzero(mine & (sent | by_itself))
    places = places[np.argsort(calls.start_ns[places], kind="stable")]
    at_ns, rejected = calls.start_ns[places], by_itself[places]
    ended = np.sort(calls.done_ns[mine & sent])
    accepts = np.sort(calls.done_ns[mine & sent & calls.is_outcome(SERVED, COALESCED)])
    width = max(1, rule.window // WINDOW_BUCKETS)
    begin = (at_ns // width - WINDOW_BUCKETS + 1) * width
    so_far: Ints = np.cumsum(rejected) - rejected
    requests = so_far - np.searchsorted(at_ns[rejected], begin) + _within(ended, begin, at_ns)
    p = np.maximum(0.0, (requests - rule.k * _within(accepts, begin, at_ns)) / (requests + 1))
    return Asked(places, at_ns, rejected, p)


def _within(events_ns: Ints, begin_ns: Ints, end_ns: Ints) -> Ints:
    """Events in [begin, end] of each window; events in order."""
    return np.asarray(np.searchsorted(events_ns, end_ns, side="right") - np.searchsorted(events_ns, begin_ns))


def _rules(trial: Trial, profile: Profile, name: str, rule: Adaptive, params: Params) -> Iterator[Rule]:
    calls, asks = trial.attempts, asked(trial, name, rule)
    parts = [("the whole trial", np.ones(len(asks.places), dtype=np.bool_))]
    for phase, window in profile.phases.items():
        parts.append((phase, (asks.at_ns >= window.from_ns) & (asks.at_ns < window.to_ns)))
    for what, mask in parts:
        if mask.any():
            yield _as_often(name, what, asks, mask, ids(calls, asks.places[mask & asks.rejected]), params)
    # Refused, failed or in vain: a service that accepts nothing is not well, whatever it says.
    unwell = of_tenant(trial, calls, name) & (calls.sent_ns >= 0) & ~calls.is_outcome(SERVED, COALESCED)
    last_ns = int(calls.done_ns[unwell].max(initial=0))
    after = asks.at_ns >= last_ns + rule.window * windows_to_recover(asks, last_ns, rule)
    n, still = int(after.sum()), int((asks.rejected & after).sum())
    yield at_most(
        name, "rejected after the overload", still / max(1, n), params.recovered, "share", n,
        f"{name}: {still} of {n} calls are still rejected when the service has long been well",
        ids(calls, asks.places[after & asks.rejected]),
    )  # fmt: skip
    expected = int(asks.p.sum())
    add = "a service that accepts less than one in K of the calls for a while"
    yield enough(name, "rejections that the formula asks for", expected, params.expected, "calls", add)
    yield enough(name, "calls after the overload", n, params.after, "calls", "a longer recovery: more than two windows")


def windows_to_recover(asks: Asked, last_ns: int, rule: Adaptive) -> int:
    """Windows after the last refusal, at `last_ns`, until a client that keeps to the formula sends everything again."""
    before = (asks.at_ns > last_ns - rule.window) & (asks.at_ns <= last_ns)
    n = int(before.sum())
    share = max(1, int((before & ~asks.rejected).sum())) / max(1, n)
    return 1 + min(MOST_WINDOWS, math.ceil(math.log(1 / share) / math.log(max(rule.k, 1.1))))


def _as_often(name: str, what: str, asks: Asked, mask: Mask, witnesses: list[str], params: Params) -> Rule:
    p, rejected = asks.p[mask], int(asks.rejected[mask].sum())
    expected, spread = float(p.sum()), float((p * (1 - p)).sum())
    risk = math.log(2 / params.risk)
    bound = risk / 3 + math.sqrt(risk * risk / 9 + 2 * spread * risk)
    sentence = (
        f"{name}: rejected {rejected} of {len(p)} calls by itself in {what}, where the formula says {expected:.0f}, "
        f"give or take {bound:.0f}"
    )
    quantity = f"rejections off the formula, {what}"
    off = round(abs(rejected - expected), 3)
    return at_most(name, quantity, off, round(bound, 3), "calls", len(p), sentence, witnesses)


CHECKS[NAME] = Check(
    NAME,
    "a client that throttles itself rejects as often as the formula says, and recovers when the service has",
    "a tenant with `throttle`, an overload that makes it reject, and two windows after it",
    Params,
    judge,
)
