"""Guard rails: a load tool can take a service down, so that it must be told that it may, and stops by itself.

    before    the host is on the allow list; the worst-case amplified rate is under the target's `max_rate`; nothing
              scales time against a service that keeps its own
    during    at most `max_in_flight` calls; the abort rule, which ends the trial when the target suffers

Pure: `AbortRule` is told of each ended call with its time. What is not sent because of a rail is `dropped`, with the
rail as its reason: never a silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from harness.ledger.outcomes import FAILED, SERVED
from harness.profile.demand import NO_PEAKS, amplification, most_calls, peak_rate_per_s, worst_case_rate_per_s
from harness.profile.model import Profile
from harness.profile.units import show_duration, show_rate
from harness.target.model import Abort, Limits, TargetFile

NO_CALLS: Mapping[str, int] = MappingProxyType({})
IN_FLIGHT = "in_flight_ceiling"
"""Reason of a call that was dropped at `max_in_flight`."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What a trial may send where, for the banner and the rails. rates: calls per second."""

    url: str
    peak_per_s: float
    worst_per_s: float
    amplified: int
    calls: int
    duration_ns: int
    max_rate_per_s: float | None
    max_in_flight: int | None


def sending_of(
    profile: Profile,
    url: str,
    limits: Limits | None,
    recorded_peaks: Mapping[str, Fraction] = NO_PEAKS,
    recorded_calls: Mapping[str, int] = NO_CALLS,
) -> Sending:
    """recorded_peaks, recorded_calls: of each tenant whose calls are a log's, in its busiest second and in all."""
    recorded = sum(count * amplification(profile.tenants[name]) for name, count in recorded_calls.items())
    return Sending(
        url,
        float(peak_rate_per_s(profile, None, recorded_peaks)),
        float(worst_case_rate_per_s(profile, recorded_peaks)),
        max((amplification(tenant) for tenant in profile.tenants.values()), default=1),
        most_calls(profile) + recorded,
        profile.duration,
        float(limits.max_rate) if limits else None,
        limits.max_in_flight if limits else None,
    )


def refusals(
    profile: Profile, target: TargetFile, time_scale: float = 1.0, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS
) -> list[str]:
    """Why this profile must not be sent to this target; each with its remedy. Nothing to say: it may."""
    found = []
    if time_scale != 1:
        found.append(
            f"--time-scale {time_scale:g}: the service at {target.url} keeps its own times, so a scaled trial would "
            "say nothing of it; write a shorter profile instead"
        )
    worst, limits = worst_case_rate_per_s(profile, recorded_peaks), target.limits
    if limits is not None and worst > limits.max_rate:
        found.append(
            f"the worst case of profile '{profile.name}' is {show_rate(worst)}, every call refused and re-planned; "
            f"target '{target.name}' allows {show_rate(limits.max_rate)} (limits.max_rate): cut the rates or the "
            "re-plans' rounds, give the tenant a budget, or ask the owner of the target for more"
        )
    return found


def banner(sending: Sending, name: str = "") -> str:
    """One paragraph: what will be sent where, and what stops it. name: of the target, if it has one."""
    again = (
        f", at most {sending.worst_per_s:,.0f}/s if every call is refused (one becomes {sending.amplified})"
        if sending.amplified > 1
        else ""
    )
    rails = (
        f"limits: {sending.max_rate_per_s:,.0f} calls/s, {sending.max_in_flight:,} in flight"
        if sending.max_rate_per_s is not None
        else "no limits set (loopback)"
    )
    return (
        f"sends to {sending.url}{f' ({name})' if name else ''}: up to {sending.peak_per_s:,.0f} calls/s for "
        f"{show_duration(sending.duration_ns)}{again}; at most {sending.calls:,} calls in all; {rails}; "
        "Ctrl-C stops sending and drains"
    )


@dataclass(slots=True)
class _Window:
    """Ended calls of the last `window`: their counts are kept up to date as old ones leave."""

    rows: deque[tuple[int, bool, bool, bool, int]]
    bad: int = 0
    ordinary: int = 0
    ordinary_served: int = 0


class AbortRule:
    """Told of each ended call; says why the trial must stop, once it must.

    bad            failed, with a 5xx or without an answer (a refusal is none, whatever its status); over all
    latency_p95    of answered calls, done - sent
    ordinary_hurt  share of served calls among the ordinary tenants', against the trial's first window
    """

    def __init__(self, rule: Abort, ordinary: frozenset[int]) -> None:
        self._rule = rule
        self._ordinary = ordinary
        self._window = _Window(deque())
        self._first: float | None = None
        self._looked_ns = 0

    def ended(self, now_ns: int, tenant: int, outcome: str, status: int, latency_ns: int) -> str | None:
        """now_ns: never decreasing. status: 0 or less where there was no answer. latency_ns: -1 unknown."""
        bad = outcome == FAILED and (status >= 500 or status <= 0)
        ordinary = tenant in self._ordinary
        served = outcome == SERVED
        window = self._window
        window.rows.append((now_ns, bad, ordinary, served, latency_ns))
        window.bad += bad
        window.ordinary += ordinary
        window.ordinary_served += ordinary and served
        self._forget(now_ns - self._rule.window)
        if len(window.rows) < self._rule.least or now_ns - self._looked_ns < self._rule.window // 20:
            return None
        self._looked_ns = now_ns
        return self._judge(now_ns)

    def _forget(self, before_ns: int) -> None:
        window = self._window
        rows = window.rows
        while rows and rows[0][0] < before_ns:
            _, bad, ordinary, served, _ = rows.popleft()
            window.bad -= bad
            window.ordinary -= ordinary
            window.ordinary_served -= ordinary and served

    def _judge(self, now_ns: int) -> str | None:
        rule, window = self._rule, self._window
        calls = len(window.rows)
        if rule.server_errors_pp is not None and 100 * window.bad > rule.server_errors_pp * calls:
            share = 100 * window.bad / calls
            return f"{share:.0f} % of the last {calls} calls ended in server errors (abort.server_errors_pp)"
        if rule.latency_p95 is not None and (slow := self._p95()) > rule.latency_p95:
            shown = show_duration(slow // 1_000_000 * 1_000_000)
            return f"p95 latency of the last {calls} calls is {shown} (abort.latency_p95)"
        return self._ordinary_hurt(now_ns)

    def _p95(self) -> int:
        times = sorted(row[4] for row in self._window.rows if row[4] >= 0)
        return times[min(len(times) - 1, len(times) * 95 // 100)] if times else -1

    def _ordinary_hurt(self, now_ns: int) -> str | None:
        rule, window = self._rule, self._window
        if rule.ordinary_hurt_pp is None or window.ordinary < rule.least:
            return None
        share = 100 * window.ordinary_served / window.ordinary
        if now_ns <= rule.window or self._first is None:
            self._first = share
            return None
        if self._first - share > rule.ordinary_hurt_pp:
            return (
                f"the ordinary tenants are served {share:.0f} % of their calls, {self._first:.0f} % at the beginning "
                "(abort.ordinary_hurt_pp)"
            )
        return None
