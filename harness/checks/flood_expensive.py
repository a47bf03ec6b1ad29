"""flood.expensive: one innocuous request that fans out into hundreds of sessions does not move other tenants.

The model's tokens a minute are one quota for all. A request that looks like any chat turn, and delegates to hundreds of
sub-agents, would use up that quota, if it counted as exactly one request.

    others     their chat turns are served, and take no longer than before
    itself     what arrives of it and all of its sub-agents stays within its tenant's own bucket
    not all    a tree that its tenant's bucket pays for is let through whole

Judged by what the callers saw and by the tokens that arrived, sub-agents counted to the tenant that opened the run.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checks.capacity_frames import OPEN_RUN
from harness.checks.cost_rows import REFUSED, CostFrame, Request, cost_frame, overdrawn, stood_still
from harness.checks.flood_rows import Share, Unmoved, asked_of, unmoved
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, enough, verdict, withheld
from harness.checks.rulings import Breach, missing, never
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import SERVED
from harness.ledger.reader import Trial
from harness.profile.base import Count
from harness.profile.capacity import RunGroup
from harness.profile.cost_describe import used_by

NAME = "flood.expensive"


class Params(Unmoved):
    """agents: sub-agents from which on a request is a flood. floods: of these, at least. modest: requests with fewer
    sub-agents that must have been let through. overrun: how far the flood's tenant may overdraw its bucket, as a share
    of the burst."""

    agents: Count = 100
    floods: Count = 1
    modest: Count = 3
    overrun: Share = 0.3


def judge(trial: Trial, params: Params) -> Verdict:
    costs = cost_frame(trial)
    absent = missing(NAME, costs.frame.evidence, "arrivals", "decisions")
    if absent is not None:
        return absent
    floods = [r for r in costs.requests if agents_of(r.group) >= params.agents]
    flooding = list(dict.fromkeys(r.tenant for r in floods))
    others = [tenant for tenant in costs.tenants if tenant not in flooding]
    if not others or not any(costs.bucket_of(tenant) for tenant in flooding):
        return withheld(NAME, f"no request of a tenant with a bucket fans out into {params.agents} sub-agents",
                        "a run with `children: [{count: 200, ...}]`, `capacity.cost`, and other tenants")  # fmt: skip
    from_ns = min(r.due_ns for r in floods)
    own = (overdrawn(costs, tenant, params.overrun) for tenant in flooding)
    refused = sum(len(_opens(costs, r, *REFUSED)) for r in floods)
    rules = [
        *unmoved(costs, others, from_ns, params),
        *(rule for rule in own if rule is not None),
        _modest(costs, others, params),
        _told(costs, floods),
        enough("evidence", "fan out", len(floods), params.floods, "requests", "a run with hundreds of sub-agents"),
        enough("evidence", "would be more than its bucket", sum(_beyond(costs, r) for r in floods), params.floods,
               "requests", "sub-agents that use more than the bucket of their tenant holds"),
    ]  # fmt: skip
    asked = sum(agents_of(r.group) for r in floods)
    passed = (
        f"{len(floods)} request{'s' if len(floods) > 1 else ''} of {', '.join(flooding)} asked for {asked} sub-agents, "
        f"of which {refused} were refused: chat turns of {', '.join(others)} were served as before."
    )
    return verdict(NAME, rules, passed)


def agents_of(group: RunGroup | None) -> int:
    return sum(count for _, count, _ in group.sub_agents()) if group is not None else 0


def _beyond(costs: CostFrame, request: Request) -> bool:
    """Whether all that a request asks for is more than its tenant's bucket holds when full."""
    bucket = costs.bucket_of(request.tenant)
    return bucket is not None and request.group is not None and used_by(request.group) > bucket.burst


def _opens(costs: CostFrame, request: Request, *outcomes: str) -> list[str]:
    """Calls that opened a sub-agent of it, at any level, by how they ended."""
    runs = [run for run in costs.frame.runs if request.run is not None and costs.frame.root(run) == request.run]
    rows = (row for run in runs for row in costs.frame.runs[run].calls if row.get("action") == OPEN_RUN)
    return [str(row["call"]) for row in rows if row.get("parent") is not None and row.get("outcome") in outcomes]


def _modest(costs: CostFrame, others: Iterable[str], params: Params) -> Rule:
    """Trees of the others: wide, and paid for."""
    mine = [r for tenant in others for r in costs.of_tenant(tenant) if 0 < agents_of(r.group) < params.agents]
    every = [(asked_of(costs, r), _opens(costs, r, *REFUSED)) for r in mine]
    judged = [(one, refused) for one, refused in every if refused or not one.stood_still]
    wrong: list[Breach] = [
        (one.request.call, f"{len(refused)} of {agents_of(one.request.group)} sub-agents refused")
        for one, refused in judged
        if refused or not one.served
    ]
    return never("requests", "with a few sub-agents were not let through whole", wrong, len(judged), params.modest,
                 "requests of other tenants with a few sub-agents that their buckets pay for", "requests")  # fmt: skip


def _told(costs: CostFrame, floods: list[Request]) -> Rule:
    floods = [r for r in floods if not stood_still(costs, r.due_ns, r.last_ns)]
    every = [call for r in floods for call in _opens(costs, r, SERVED, *REFUSED)]
    asked = sum(agents_of(r.group) for r in floods if r.run is not None)
    wrong: list[Breach] = [("", f"{len(every)} of {asked} were answered so")] if len(every) < asked else []
    add = "a quieter machine, or a request with hundreds of sub-agents during which the service does not stand still"
    return never("sub-agents", "were neither opened nor refused in typed words", wrong, asked, 1, add, "sub-agents")


CHECKS[NAME] = Check(
    NAME,
    "one request that fans out into hundreds of sessions does not move other tenants",
    "decisions, arrivals that say what they used, a run with hundreds of sub-agents, chat turns before and beside it",
    Params,
    judge,
)
