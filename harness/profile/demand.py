"""What a profile can ask of a service at most, in closed form: calls, rates, capacity. No call is generated here.

A refused or abandoned call of round r < R becomes n calls of round r + 1. If every call is refused, one original call
becomes

    a = 1 + n + n^2 + ... + n^R                                    calls

and a tenant that offers r(t) [calls/s] sends at most, with L = R * (after + patience) the longest life of a re-plan,

    r(t) + (a - 1) * max r(s), t - L < s <= t                      [calls/s]

never more in one second than its own budget lets through. Tenants with runs: run_demand.py. Recorded tenants are files:
what they hold is told by whoever read them (`recorded_peaks`), and left out otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

from harness.profile import run_demand
from harness.profile.model import Profile, Service, Tenant, Window
from harness.profile.units import NS_PER_S

STUB_PER_CORE_PER_S = 1_250
"""Calls a second, on each core, up to which the bundled stub and its driver can be trusted with their own timing."""

WORKER_PER_S = 5_000
"""Calls a second that one worker of the live driver is good for with a core of its own: a call costs it 56 us at worst
(docs/performance.md, "Generating a call"), and at that over half of the core stays free, so that it keeps on time."""

NO_PEAKS: Mapping[str, Fraction] = MappingProxyType({})

_MOST_SEGMENTS = 200
_Step = tuple[int, int, Fraction]


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """offered: original calls a second, mean and highest. capacity: least and most in the phase; None: not stated.
    calls: tenant -> original calls due (recorded tenants left out)."""

    phase: str
    from_ns: int
    to_ns: int
    offered_per_s: float
    peak_per_s: float
    capacity_per_s: tuple[float, float] | None
    calls: Mapping[str, int]


def amplification(tenant: Tenant) -> int:
    """Attempts that one original call becomes at most: what follows from it, each tried as often as it may be."""
    rule, retries = tenant.replans, tenant.retries
    attempts = retries.attempts if retries else 2 if tenant.on_refusal == "result" else 1
    if rule is None:
        return attempts
    if rule.order == "sequence":  # one that fails ends its sequence: a round is n calls, not n times as many
        return attempts * (1 + rule.calls * rule.rounds)
    return attempts * sum(int(rule.calls**k) for k in range(rule.rounds + 1))


def calls_within(profile: Profile, tenant: Tenant, window: Window | None = None) -> int | None:
    """Original calls due in the window (None: in the whole trial). Exact for `even`, the expectation for `poisson`,
    None for recorded arrivals. Of a tenant with runs: the runs that begin."""
    if tenant.runs:
        return run_demand.begun_within(profile, tenant, window)
    if tenant.rate is None:
        return None
    from_ns, to_ns = (window.from_ns, window.to_ns) if window else (0, profile.duration)
    before, until = (_counted(profile, tenant, min(at, profile.duration)) for at in (from_ns, to_ns))
    if tenant.pace == "poisson":
        return round(until - before)
    return math.ceil(until) - math.ceil(before)


def _counted(profile: Profile, tenant: Tenant, at_ns: int) -> Fraction:
    """N(t): the integral of the rate from the tenant's phase to `at_ns`."""
    steps = _segments(profile, tenant)
    return sum((rate * max(0, min(to_ns, at_ns) - from_ns) for from_ns, to_ns, rate in steps), Fraction(0)) / NS_PER_S


def _segments(profile: Profile, tenant: Tenant) -> list[_Step]:
    """Where the tenant offers anything: (from_ns, to_ns, rate)."""
    if tenant.rate is None:
        return []
    clipped = ((max(a, tenant.phase), b, rate) for a, b, rate in tenant.rate.segments(profile.duration))
    return [(a, b, rate) for a, b, rate in clipped if a < b and rate]


def peak_rate_per_s(
    profile: Profile, window: Window | None = None, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS
) -> Fraction:
    """The most original calls a second of all tenants together, at any instant of the window."""
    tenants = profile.tenants.values()
    steps = [step for tenant in tenants for step in _segments(profile, tenant)]
    steps += [step for tenant in tenants for step in run_demand.steps_of(profile, tenant, worst=False)]
    return _highest(steps, window) + sum(recorded_peaks.values(), Fraction(0))


def worst_case_rate_per_s(profile: Profile, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS) -> Fraction:
    """The most calls a second that the trial can send: every call refused, at the worst instant (module docstring).
    Attempts at dependencies that runs lead to count as calls.

    recorded_peaks: tenant -> most calls a second of its recording.
    """
    steps: list[_Step] = []
    always = Fraction(0)
    for name, tenant in profile.tenants.items():
        if tenant.runs:
            steps += run_demand.steps_of(profile, tenant, worst=True)
        elif tenant.rate is not None:
            steps += _worst_steps(profile, name, tenant)
        elif name in recorded_peaks:
            always += _budgeted(tenant, recorded_peaks[name] * _per_run(profile, name, tenant))
    return _highest(steps, None) + always


def most_calls(profile: Profile) -> int:
    """The most calls that the trial can send in all, recorded tenants left out."""
    total = 0
    for name, tenant in profile.tenants.items():
        if tenant.runs:
            total += run_demand.most_calls(profile, tenant)
            continue
        calls = (calls_within(profile, tenant) or 0) * _per_run(profile, name, tenant)
        for budget in tenant.budget:
            if budget.scope == "tenant":
                calls = min(calls, budget.burst + math.floor(budget.rate * profile.duration / NS_PER_S))
        total += calls
    return total


def busiest(profile: Profile, most: int) -> tuple[str, ...]:
    """At most so many tenants, those that may send most: who is told of one by one where all would be too many.
    Recorded ones are taken as they come: a replay lists its busiest first."""
    if len(profile.tenants) <= most:
        return tuple(profile.tenants)

    def may_send(name: str) -> float:
        tenant = profile.tenants[name]
        if tenant.runs:
            return run_demand.most_calls(profile, tenant)
        calls = calls_within(profile, tenant)
        return math.inf if calls is None else calls * amplification(tenant)

    return tuple(sorted(profile.tenants, key=may_send, reverse=True)[:most])


def _per_run(profile: Profile, name: str, tenant: Tenant) -> int:
    """Attempts that one original call becomes at most, with a budget for each run counted in."""
    most = amplification(tenant)
    if tenant.loop is not None and tenant.loop.iterations is not None:
        most = min(most, tenant.loop.iterations)
    life_ns = _replan_life_ns(profile, name, tenant)
    for budget in tenant.budget:
        if budget.scope == "run" and life_ns is not None:
            most = min(most, budget.burst + math.floor(budget.rate * life_ns / NS_PER_S))
    return most


def _replan_life_ns(profile: Profile, name: str, tenant: Tenant) -> int | None:
    """How long after an original call its last re-plan can be due; None: no bound."""
    if tenant.retries is not None or tenant.on_refusal == "result":
        return None  # what Retry-After says has no bound here
    if tenant.replans is None:
        return 0
    patience = profile.patience_of(name)
    return None if patience is None else tenant.replans.rounds * (tenant.replans.after + patience)


def _budgeted(tenant: Tenant, rate: Fraction) -> Fraction:
    """In one second a bucket lets through what it holds and what flows in."""
    own = [budget.rate + budget.burst for budget in tenant.budget if budget.scope == "tenant"]
    return min([rate, *own])


def _worst_steps(profile: Profile, name: str, tenant: Tenant) -> list[_Step]:
    """The tenant's worst rate over time, as steps that do not overlap."""
    segments = _segments(profile, tenant)
    most = _per_run(profile, name, tenant)
    if most == 1 or not segments:
        return [(a, b, _budgeted(tenant, rate)) for a, b, rate in segments]
    end, life_ns = profile.duration, _replan_life_ns(profile, name, tenant)
    if life_ns is None or len(segments) > _MOST_SEGMENTS:
        # Too many steps to look at each against each: their highest, all the time, is a bound too.
        return [(0, end, _budgeted(tenant, max(rate for _, _, rate in segments) * most))]
    edges = sorted({edge for a, b, _ in segments for edge in (a, b, min(end, b + life_ns))})
    steps = []
    for a, b in pairwise(edges):
        own = next((rate for x, y, rate in segments if x <= a < y), Fraction(0))
        felt = max((rate for x, y, rate in segments if x < b and a < y + life_ns), default=Fraction(0))
        steps.append((a, b, _budgeted(tenant, own + (most - 1) * felt)))
    return steps


def _highest(steps: Iterable[_Step], window: Window | None) -> Fraction:
    """The highest sum of steps at any instant."""
    changes: dict[int, Fraction] = {}
    for a, b, rate in steps:
        from_ns, to_ns = (max(a, window.from_ns), min(b, window.to_ns)) if window else (a, b)
        if from_ns < to_ns:
            changes[from_ns] = changes.get(from_ns, Fraction(0)) + rate
            changes[to_ns] = changes.get(to_ns, Fraction(0)) - rate
    highest = level = Fraction(0)
    for at in sorted(changes):
        level += changes[at]
        highest = max(highest, level)
    return highest


def mean_service_ns(service: Service) -> int | None:
    """With every worker busy; None where it depends on a recording."""
    time = service.service_time
    if time.mean is None:
        return None
    return int(time.mean * (1 + Fraction(str(time.load_slope))))


def capacity_per_s(profile: Profile, window: Window) -> tuple[Fraction, Fraction] | None:
    """Calls that the described service can finish a second, least and most in the window: workers over service time.
    None where the profile does not say."""
    if profile.service is None or not (mean_ns := mean_service_ns(profile.service)):
        return None
    spans = profile.service.workers.segments(window.to_ns)
    workers = [count for _, to_ns, count in spans if to_ns > window.from_ns]
    return Fraction(min(workers) * NS_PER_S, mean_ns), Fraction(max(workers) * NS_PER_S, mean_ns)


def stub_limit_per_s(cores: int) -> int:
    return STUB_PER_CORE_PER_S * max(1, cores)


def stub_refusal(profile: Profile, cores: int, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS) -> str | None:
    """Why the bundled stub must not be given this profile on a machine with so many cores; None if it may."""
    worst, limit = worst_case_rate_per_s(profile, recorded_peaks), stub_limit_per_s(cores)
    if worst <= limit:
        return None
    slower = math.ceil(worst / limit * 100) / 100
    return (
        f"the worst case is {float(worst):,.0f} calls/s, and the bundled stub is trusted up to {limit:,}/s on "
        f"{cores} core{'s' if cores != 1 else ''}; slow the trial down (--time-scale {slower:g} times as large), cut "
        "the rates or the re-plans' rounds, give the tenant a budget, or simulate it (overload simulate)"
    )


def workers_needed(profile: Profile, recorded_peaks: Mapping[str, Fraction] = NO_PEAKS) -> int:
    """Workers, each with a core of its own, that can send the worst case on time."""
    return max(1, math.ceil(worst_case_rate_per_s(profile, recorded_peaks) / WORKER_PER_S))
