"""What a log says about its callers: rates, waits, refusals and inferred re-plans by identity, in one pass.

The first step of any migration to admission by tenant: know who calls how often, who is refused, and who answers a
refusal with more calls. A log does not say why a call was made, so the re-plan share is inferred:

    inferred re-plan share = calls of an identity within W after a failure of the same identity / its calls

It counts every call that follows a failure, also one that had been due anyway: for a busy identity it is an upper
bound. It is never mixed with a share that was recorded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from harness.profile.units import NS_PER_S
from harness.recorded.errors import RecordedError
from harness.recorded.prepare import MAX_IDENTITIES
from harness.recorded.record import Record

REFUSALS = frozenset((429, 503))
MINUTE_NS = 60 * NS_PER_S
_WAIT_STEP = 1.05


@dataclass(slots=True)
class Waits:
    """Queue times in buckets that are 5 % wide, so that a quantile costs no list of all of them."""

    count: int = 0
    total_ns: int = 0
    most_ns: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, wait_ns: int) -> None:
        self.count += 1
        self.total_ns += wait_ns
        self.most_ns = max(self.most_ns, wait_ns)
        self.buckets[int(math.log(wait_ns, _WAIT_STEP)) if wait_ns > 1 else 0] += 1

    @property
    def mean_ns(self) -> float | None:
        return self.total_ns / self.count if self.count else None

    def quantile_ns(self, share: float) -> float | None:
        """Good to 5 %: the upper edge of the bucket in which it lies, never above the largest wait."""
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= share * self.count:
                return min(float(self.most_ns), _WAIT_STEP ** (bucket + 1))
        return None


@dataclass(slots=True)
class Identity:
    """One caller in the log. after_failure: its calls within W after a failure of its own.

    identities: how many callers were folded into it. peak_minute: -1 where they were, for peaks do not add up.
    """

    name: str
    calls: int = 0
    refused: int = 0
    failed: int = 0
    after_failure: int = 0
    peak_minute: int = 0
    last_failure_ns: int = -1
    waits: Waits = field(default_factory=Waits)
    identities: int = 1

    @property
    def refused_share(self) -> float:
        return self.refused / self.calls if self.calls else 0.0

    @property
    def inferred_replan_share(self) -> float:
        return self.after_failure / self.calls if self.calls else 0.0


@dataclass(slots=True)
class Study:
    """span_ns: from the first call to the last, at least a second. minutes: minutes with a call in them."""

    calls: int
    begin_ns: int
    span_ns: int
    minutes: int
    peak_minute: int
    with_status: int
    waits: Waits
    identities: dict[str, Identity]

    def rate_per_s(self, calls: int) -> Fraction:
        return Fraction(calls * NS_PER_S, self.span_ns)

    def ranked(self, top: int | None, rest: str) -> list[Identity]:
        """Busiest first (ties by name), all but the first `top` folded into one."""
        ranked = sorted(self.identities.values(), key=lambda one: (-one.calls, one.name))
        if top is None or len(ranked) <= top:
            return ranked
        return [*ranked[:top], _folded(ranked[top:], rest)]


def _folded(others: list[Identity], name: str) -> Identity:
    rest = Identity(name, peak_minute=-1, identities=len(others))
    for one in others:
        rest.calls += one.calls
        rest.refused += one.refused
        rest.failed += one.failed
        rest.after_failure += one.after_failure
        rest.waits.count += one.waits.count
        rest.waits.total_ns += one.waits.total_ns
        rest.waits.most_ns = max(rest.waits.most_ns, one.waits.most_ns)
        rest.waits.buckets.update(one.waits.buckets)
    return rest


def study(
    records: Iterable[Record],
    at: Callable[[int], int],
    within_ns: int,
    refusals: frozenset[int] = REFUSALS,
) -> Study:
    """records in order of time. at: log time to the time that rates are taken over (TrialClock.at: squeezed).

    A failure is a refusal or a 5xx. Raises RecordedError on more than MAX_IDENTITIES identities.
    """
    found = Study(0, 0, NS_PER_S, 0, 0, 0, Waits(), {})
    minute, in_minute = -1, Counter[str]()
    first_ns = last_ns = 0
    for record in records:
        if not found.calls:
            found.begin_ns, first_ns = record.t_ns, at(record.t_ns)
        last_ns = at(record.t_ns)
        found.calls += 1
        if record.t_ns // MINUTE_NS != minute:
            _close_minute(found, in_minute)
            minute = record.t_ns // MINUTE_NS
        in_minute[record.tenant] += 1
        one = found.identities.get(record.tenant)
        if one is None:
            if len(found.identities) >= MAX_IDENTITIES:
                raise RecordedError("--tenant", f"more than {MAX_IDENTITIES:,} identities", "take another field")
            one = found.identities[record.tenant] = Identity(record.tenant)
        _count(one, record, within_ns, refusals)
        if record.status:
            found.with_status += 1
        if record.queue_ns >= 0:
            found.waits.add(record.queue_ns)
            one.waits.add(record.queue_ns)
    _close_minute(found, in_minute)
    found.span_ns = max(NS_PER_S, last_ns - first_ns)
    return found


def _count(one: Identity, record: Record, within_ns: int, refusals: frozenset[int]) -> None:
    one.calls += 1
    if one.last_failure_ns >= 0 and record.t_ns - one.last_failure_ns <= within_ns:
        one.after_failure += 1
    refused = record.status in refusals
    if refused:
        one.refused += 1
    if refused or record.status >= 500:
        one.failed += 1
        one.last_failure_ns = record.t_ns


def _close_minute(found: Study, in_minute: Counter[str]) -> None:
    if in_minute:
        found.minutes += 1
        found.peak_minute = max(found.peak_minute, in_minute.total())
        for name, calls in in_minute.items():
            one = found.identities[name]
            one.peak_minute = max(one.peak_minute, calls)
        in_minute.clear()


def agents_among(found: Study, is_agent: Callable[[str], bool]) -> Identity:
    """All identities that are agent runtimes, as if they were one."""
    return _folded([one for one in found.identities.values() if is_agent(one.name)], "agents")


def study_json(found: Study, ranked: list[Identity], agents: frozenset[str], within_ns: int) -> dict[str, Any]:
    return {
        "calls": found.calls,
        "begin_ns": found.begin_ns,
        "span_ns": found.span_ns,
        "minutes_with_calls": found.minutes,
        "rate_per_s": float(found.rate_per_s(found.calls)),
        "peak_minute_calls": found.peak_minute,
        "calls_with_status": found.with_status,
        "queue": _waits_json(found.waits),
        "replan_share": {"kind": "inferred", "within_ns": within_ns},
        "identities": len(found.identities),
        "tenants": [
            {
                "tenant": one.name,
                "identities": one.identities,
                "agent": one.name in agents,
                "calls": one.calls,
                "rate_per_s": float(found.rate_per_s(one.calls)),
                "peak_minute_calls": None if one.peak_minute < 0 else one.peak_minute,
                "refused": one.refused,
                "refused_share": one.refused_share if found.with_status else None,
                "failed": one.failed,
                "inferred_replan_share": one.inferred_replan_share if found.with_status else None,
                "queue": _waits_json(one.waits),
            }
            for one in ranked
        ],
    }


def _waits_json(waits: Waits) -> dict[str, float | int] | None:
    if not waits.count:
        return None
    mean, p95 = waits.mean_ns, waits.quantile_ns(0.95)
    return {"samples": waits.count, "mean_ns": mean or 0.0, "p95_ns": p95 or 0.0, "max_ns": waits.most_ns}
