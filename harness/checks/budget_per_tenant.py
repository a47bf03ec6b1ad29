"""agent.budget_per_tenant: a hundred runs at once, each within its own budget, stay within their tenant's.

For each tenant with a budget for itself and one for each of its runs, from the instants in the ledger:

    held back    what both budgets together hold back, asked all or nothing, call by call: exactly
    sent         <= burst + rate * window of the tenant's, in every window, give or take what the harness may be late
    of a run     what its own budget alone allows, of what was sent

A run's budget bounds a run. Where only that is asked, a hundred of them are bounded by nothing.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.attempt_rows import ids, of_tenant
from harness.checks.budget_replay import counted_as_sent, grants, most_beyond, replay
from harness.checks.context import profile_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, none_of, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.profile.base import DurationNs, Part
from harness.profile.model import Tenant
from harness.profile.units import NS_PER_S, show_rate

NAME = "agent.budget_per_tenant"


class Params(Part):
    """runs: how many must have been under way at once. held: calls that each of both budgets must have held back.
    late: how far the harness may displace a start."""

    runs: Annotated[int, Field(ge=2, strict=True)] = 100
    held: Annotated[int, Field(ge=1, strict=True)] = 10
    late: DurationNs = 50_000_000


def judge(trial: Trial, params: Params) -> Verdict:
    profile = profile_of(trial)
    both = {name: tenant for name, tenant in profile.tenants.items() if len(tenant.budget) > 1}
    if not both:
        add = (
            "`budget: [{rate: 2/s, burst: 3, scope: run}, {rate: 40/s, burst: 40}]` for a tenant with many runs at once"
        )
        return withheld(NAME, "no tenant has a budget for itself and one for each of its runs", add)
    rules = [rule for name, tenant in both.items() for rule in _rules(trial, name, tenant, params)]
    names = ", ".join(list(both)[:5])
    return verdict(
        NAME, rules, f"The runs of {names} stayed within their own budgets and, together, within the tenant's."
    )


def _rules(trial: Trial, name: str, tenant: Tenant, params: Params) -> list[Rule]:
    calls = trial.attempts
    whole = next(budget for budget in tenant.budget if budget.scope == "tenant")
    own = [budget for budget in tenant.budget if budget.scope == "run"]
    asks = replay(trial, name, tenant.budget)
    sent = np.flatnonzero(of_tenant(trial, calls, name) & (calls.sent_ns >= 0))
    sent = sent[np.argsort(calls.start_ns[sent], kind="stable")]
    over = sent[~grants(own, calls.start_ns[sent], calls.run[sent])]
    beyond = most_beyond(whole.rate, counted_as_sent(calls, sent, params.late))
    bound = whole.burst + 1 + float(whole.rate) * params.late / NS_PER_S
    held = {
        scope: int((of_tenant(trial, calls, name) & calls.reason.equals(f"{scope}_budget")).sum())
        for scope in ("tenant", "run")
    }
    disagree = (
        f"{name}: held back {int(asks.held.sum())} of {len(asks.places)} attempts, and its budgets say "
        f"{int((~asks.allowed).sum())}"
    )
    return [
        at_most(
            name, "sent beyond the tenant's rate", round(beyond, 3), round(bound, 3), "calls", len(sent),
            f"{name}: sent {beyond:.0f} calls beyond {show_rate(whole.rate)} in one window; the burst of the tenant's "
            f"budget is {whole.burst}", ids(calls, asks.wrong),
        ),
        none_of(name, "beyond its run's budget", ids(calls, over), len(sent), "calls",
                f"{name}: {len(over)} calls were sent beyond the budget of their run"),
        none_of(name, "held back unlike the budgets", ids(calls, asks.wrong), len(asks.places), "calls", disagree),
        enough(name, "runs at once", _at_once(trial, name), params.runs, "runs", "more runs at once, or longer ones"),
        *(
            enough(name, f"held back by the {scope}'s budget", held[scope], params.held, "calls",
                   "more load than both budgets allow")
            for scope in held
        ),
    ]  # fmt: skip


def _at_once(trial: Trial, name: str) -> int:
    """Most runs under way at one instant: from the first call that left to the end of the last."""
    calls = trial.attempts
    mine = np.flatnonzero(of_tenant(trial, calls, name) & (calls.sent_ns >= 0))
    _, run = np.unique(calls.run[mine], return_inverse=True)
    count = int(run.max()) + 1 if len(run) else 0
    begin, end = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(begin, run, calls.start_ns[mine])
    np.maximum.at(end, run, calls.done_ns[mine])
    at = np.concatenate((begin, end))
    change = np.concatenate((np.ones(count, dtype=np.int64), np.full(count, -1)))
    return int(change[np.lexsort((change, at))].cumsum().max(initial=0))


CHECKS[NAME] = Check(
    NAME,
    "many runs at once, each within its own budget, stay within the budget of their tenant",
    "a tenant with both budgets, a hundred runs at once, and more load than both allow",
    Params,
    judge,
)
