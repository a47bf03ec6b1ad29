"""Whether a profile is long enough for its verdicts, in plain sentences.

The evidence that a verdict needs follows from its statistics: with z = 1.645 (one-sided 95 %), n calls without a loss
leave an upper end of z^2 / (n + z^2), so a margin m is in reach from z^2 (1 - m) / m calls (268 at one point); a loss
of twice the margin is told from it reliably (97 % of trials) from about 20 / m calls (2,000). Percentiles gate from 300
samples (p95) and 1,000 (p99). Judges nothing: a check asks its trial, not its profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from harness.profile.demand import PhaseLoad
from harness.profile.model import CheckRef, Profile, Tenant
from harness.profile.wording import names_of

Z2 = 1.6448536269514722**2
P95_SAMPLES, P99_SAMPLES = 300, 1_000
MOST_GROUPS = 6
"""Of tenants that are alike, so many groups are told apart."""


def evidence_sentences(profile: Profile, phases: tuple[PhaseLoad, ...], check: CheckRef) -> Iterable[str]:
    """Whether a check can come to a verdict, as far as that shows beforehand."""
    tenants = profile.tenants.values()
    if check.name == "fairness.ordinary_unmoved":
        yield from _ordinary_evidence(profile, {phase.phase: phase for phase in phases}, check)
    elif check.name == "agent.replan_share" and not any(tenant.replans for tenant in tenants):
        yield f"{check.name}: no tenant re-plans, so every share will be 0."
    elif check.name in _AGENT_NEEDS and not any(_AGENT_NEEDS[check.name][0](tenant) for tenant in tenants):
        yield f"{check.name}: it cannot be judged without a tenant's `{_AGENT_NEEDS[check.name][1]}`."
    elif check.name == "fairness.refusals_structured" and all(map(_fits, phases)):
        yield f"{check.name}: nothing offers more than the capacity, so hardly anything will be refused and judged."


_AGENT_NEEDS: dict[str, tuple[Callable[[Tenant], object], str]] = {
    "fairness.identity_from_credential": (lambda tenant: tenant.claims, "claims: {values: 50}"),
    "agent.budget_at_source": (lambda tenant: tenant.budget, "budget: {rate: 10/s, burst: 10}"),
    "agent.budget_per_tenant": (
        lambda tenant: len(tenant.budget) > 1,
        "budget: [{rate: 2/s, burst: 3, scope: run}, {rate: 10/s, burst: 10}]",
    ),
    "agent.rounds_capped": (lambda tenant: tenant.replans, "replans: {calls: 2, after: 500ms, rounds: 3}"),
    "agent.retry_budget": (lambda tenant: tenant.retries, "retries: {attempts: 3, budget: 10%}"),
    "agent.adaptive_throttle": (lambda tenant: tenant.throttle, "throttle: {adaptive: {k: 2, window: 120s}}"),
    "agent.refusal_is_a_result": (lambda tenant: tenant.on_refusal == "result", "on_refusal: result"),
}
"""What a check of callers needs of a tenant, and how it is written."""


def _fits(phase: PhaseLoad) -> bool:
    return phase.capacity_per_s is not None and phase.peak_per_s <= phase.capacity_per_s[0]


def _ordinary_evidence(profile: Profile, phases: Mapping[str, PhaseLoad], check: CheckRef) -> Iterable[str]:
    calm, burst = phases.get("calm"), phases.get("burst")
    if calm is None or burst is None or not profile.ordinary:
        missing = "ordinary tenants" if not profile.ordinary else "phases calm and burst"
        yield f"{check.name}: it cannot be judged without {missing}."
        return
    margin = _margin(check)
    groups: dict[int, list[str]] = {}
    for name in profile.ordinary:
        if name in burst.calls:
            groups.setdefault(burst.calls[name], []).append(name)
    pooled = sum(calls * len(names) for calls, names in groups.items())
    for calls, names in list(groups.items())[:MOST_GROUPS]:
        many = len(names) > 1
        who = f"{names_of(names)} {'have' if many else 'has'} {calls:,} calls {'each ' if many else ''}in the burst"
        yield f"{check.name}: {who}: {_reach(calls, margin)}."
    if len(profile.ordinary) > 1 and pooled:
        yield f"{check.name}: pooled, they have {pooled:,} calls in the burst: {_reach(pooled, margin)}."


def _margin(check: CheckRef) -> float:
    """The margin as a share. The check's own rules judge the parameter; here it only sizes a sentence."""
    points = check.params.get("served_down_pp", 1.0)
    sound = isinstance(points, int | float) and 0 < points < 100
    return float(points) / 100 if sound else 0.01


def calls_to_pass(margin: float) -> int:
    """Calls without one loss that bring the upper end of the interval under the margin (a share)."""
    return math.floor(Z2 * (1 - margin) / margin) + 1


def calls_to_fail(margin: float) -> int:
    """Calls from which a loss of twice the margin (a share) is told from the margin in 97 % of trials."""
    return round(20 / margin)


def _reach(calls: int, margin: float) -> str:
    to_pass, to_fail = calls_to_pass(margin), calls_to_fail(margin)
    points, loss = f"a {margin * 100:g}-point margin", f"a {margin * 200:g} % loss reliably"
    gates = (
        "p99 may gate" if calls >= P99_SAMPLES else "p95 may gate" if calls >= P95_SAMPLES else "no percentile gates"
    )
    if calls < to_pass:
        needed = f"{to_pass:,} needed; scale rates and workers together x{math.ceil(to_pass / max(1, calls))}"
        return f"too few to pass at {points} even without a loss ({needed}); {gates}"
    if calls < to_fail:
        needed = f"about {to_fail:,} calls; scale rates and workers together x{math.ceil(to_fail / calls)}"
        return f"enough to pass at {points}, not enough to fail {loss} ({needed}); {gates}"
    return f"enough to pass at {points}, and to fail {loss}; {gates}"
