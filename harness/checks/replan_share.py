"""agent.replan_share: how much of each tenant's traffic follows a failure, over all and over time.

It reports, and alerts in its sentence: when a tenant's share in any window is over `alert_over`, or has risen by more
than `alert_rise` above its share in calm. An alert alone does not fail a trial, because a re-planning agent whose
damage is contained is the point of a fair service; `fail_over` makes it one that does. A tenant with too few calls is
then neither passed nor blamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.checks.context import due_in, profile_of, witnesses
from harness.checks.registry import CHECKS, Check
from harness.checks.verdict import Finding, Verdict, Word, worst
from harness.ledger.reader import Trial
from harness.measure.replans import SharesOverTime, shares_over_time
from harness.profile.base import DurationNs, Part
from harness.profile.model import Window
from harness.profile.units import NS_PER_S

NAME = "agent.replan_share"
MOST_FINDINGS = 50
Floats = npt.NDArray[np.float64]
Share = Annotated[float, Field(ge=0, le=1)]


class Params(Part):
    """alert_over, alert_rise: shares. fail_over: a share over which the check FAILs; left out, it only reports. window:
    the grain over time; one with fewer than `least_calls` calls is not looked at alone, nor does such a tenant FAIL.
    """

    alert_over: Share = 0.2
    alert_rise: Share = 0.2
    fail_over: Share | None = None
    window: DurationNs = 5_000_000_000
    least_calls: Annotated[int, Field(ge=1, strict=True)] = 50


@dataclass(frozen=True, slots=True)
class _Tenant:
    """worst: the largest of its windows' shares and its total. when: of which window. calm: its share, None unknown."""

    name: str
    index: int
    replans: int
    calls: int
    worst: float
    when: str
    calm: float | None

    @property
    def share(self) -> float:
        return self.replans / self.calls


def judge(trial: Trial, params: Params) -> Verdict:
    calls = trial.calls
    if not len(calls):
        return Verdict(NAME, Word.INCONCLUSIVE, None, None, "share", 0, "No call was due.", add="a trial with calls")
    calm = _calm_shares(trial, profile_of(trial).phases.calm, params.least_calls)
    over_time = shares_over_time(calls.tenant, calls.due_ns, calls.round > 0, len(trial.tenants), params.window)
    found = [
        _tenant(trial.tenants[index], index, over_time, params, calm)
        for index in np.flatnonzero(over_time.calls.any(axis=1)).tolist()
    ]
    found.sort(key=lambda tenant: (-tenant.worst, tenant.index))
    alerts = [tenant for tenant in found if _alert(tenant, params)]
    over = [tenant for tenant in found if _word(tenant, params) is Word.FAIL]
    word = worst(_word(tenant, params) for tenant in found)
    thin = f"at least {params.least_calls} calls of each tenant" if word is Word.INCONCLUSIVE else ""
    top = found[0]
    bound = params.fail_over if params.fail_over is not None else params.alert_over
    mask = (calls.round > 0) & np.isin(calls.tenant, [tenant.index for tenant in over or alerts])
    return Verdict(
        NAME,
        word,
        round(top.worst, 6),
        bound,
        "share",
        len(calls),
        _sentence(top, alerts, over),
        witnesses(trial, mask) if over or alerts else (),
        thin,
        findings=tuple(finding for tenant in found[:MOST_FINDINGS] for finding in _findings(tenant, params)),
    )


def _calm_shares(trial: Trial, calm: Window | None, least_calls: int) -> Floats:
    """Each tenant's share in calm; NaN where it has too few calls there."""
    calls, tenants = trial.calls, len(trial.tenants)
    if calm is None:
        return np.full(tenants, np.nan)
    inside = due_in(trial, calm)
    n = np.bincount(calls.tenant[inside], minlength=tenants)
    replans = np.bincount(calls.tenant[inside & (calls.round > 0)], minlength=tenants)
    return np.where(n >= least_calls, replans / np.maximum(n, 1), np.nan)


def _tenant(name: str, index: int, over_time: SharesOverTime, params: Params, calm: Floats) -> _Tenant:
    replans, n = over_time.total(index)
    windows = over_time.window_shares(index, params.least_calls)
    worst, when = replans / n, "the whole trial"
    if not np.isnan(windows).all():
        place = int(np.nanargmax(windows))
        if windows[place] > worst:
            begin, end = place * over_time.window_ns, (place + 1) * over_time.window_ns
            worst, when = float(windows[place]), f"{begin / NS_PER_S:g} s to {end / NS_PER_S:g} s"
    share = None if np.isnan(calm[index]) else float(calm[index])
    return _Tenant(name, index, replans, n, worst, when, share)


def _alert(tenant: _Tenant, params: Params) -> bool:
    rose = tenant.calm is not None and tenant.worst - tenant.calm > params.alert_rise
    return tenant.worst > params.alert_over or rose


def _word(tenant: _Tenant, params: Params) -> Word:
    if params.fail_over is None or tenant.worst <= params.fail_over:
        return Word.PASS
    return Word.FAIL if tenant.calls >= params.least_calls else Word.INCONCLUSIVE


def _findings(tenant: _Tenant, params: Params) -> list[Finding]:
    bound = params.fail_over if params.fail_over is not None else params.alert_over
    word = _word(tenant, params)
    note = f"ALERT: {tenant.worst:.1%} in {tenant.when}" if _alert(tenant, params) else ""
    return [
        Finding(
            tenant.name, "re-plan share", word, round(tenant.share, 6), None, None, bound, "share", tenant.calls, note
        ),
        Finding(
            tenant.name, "re-plan share, worst window", word, round(tenant.worst, 6), None, None, bound, "share",
            tenant.calls, tenant.when,
        ),
    ]  # fmt: skip


def _sentence(top: _Tenant, alerts: list[_Tenant], over: list[_Tenant]) -> str:
    if not alerts and not over:
        return f"No tenant re-plans much: at most {top.worst:.1%} of calls follow a failure ({top.name}, {top.when})."
    names = ", ".join(tenant.name for tenant in (over or alerts)[:5])
    sentence = (
        f"ALERT: {top.worst:.1%} of {top.name}'s calls in {top.when} follow a failure "
        f"({top.share:.1%} over the whole trial)"
    )
    if top.calm is not None:
        sentence += f", {top.calm:.1%} in calm"
    return f"{sentence}; over the {'bound' if over else 'alert threshold'}: {names}."


CHECKS[NAME] = Check(
    NAME,
    "the share of calls that follow a failure, per tenant and over time; alerts, and fails only over `fail_over`",
    "calls",
    Params,
    judge,
)
