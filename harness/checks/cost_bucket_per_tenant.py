"""cost.bucket_per_tenant: rate and burst of cost for each tenant, and none that is shared.

    its own     what arrives of a tenant never overdraws its own bucket by more than a forecast may be wrong
    not other's nobody is refused for tokens while its own bucket holds enough: another's spending is not its matter
    not wasted  a tenant that is refused has used what its bucket held

Judged by what arrived at the dependencies (tokens of their answers), against the buckets of the profile. It must never
blame a layer for refusing a tenant that has used what is its own.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.checks.cost_rows import (
    REFUSED,
    TOKENS,
    CostFrame,
    cost_frame,
    overdrawn,
    refused_with_enough,
)
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_least, enough, verdict, withheld
from harness.checks.rulings import missing
from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.profile.base import Count, Part
from harness.profile.units import NS_PER_S

NAME = "cost.bucket_per_tenant"
Share = Annotated[float, Field(ge=0, le=100)]


class Params(Part):
    """overrun: how far a bucket may be overdrawn, as a share of its burst. generous: how many times what a run uses a
    bucket must hold before a refusal is a breach. wasted: how much of its bucket a refused tenant must have used.
    refused: requests of one tenant that must have been refused; served: runs of others that must have been served."""

    overrun: Share = 0.3
    generous: Annotated[float, Field(ge=1, le=100)] = 4.0
    wasted: Share = 0.7
    refused: Count = 20
    served: Count = 20


def judge(trial: Trial, params: Params) -> Verdict:
    frame = cost_frame(trial)
    if (absent := missing(NAME, frame.frame.evidence, "arrivals")) is not None:
        return absent
    if frame.cost is None or not any(frame.bucket_of(tenant) for tenant in frame.tenants):
        return withheld(NAME, "the profile describes no bucket of cost", "`capacity.cost` with `tenants` or `each`")
    refused = {tenant: _refused(frame, tenant) for tenant in frame.tenants}
    own = [rule for tenant in frame.tenants if (rule := overdrawn(frame, tenant, params.overrun)) is not None]
    used = [rule for tenant, n in refused.items() if n and (rule := _not_wasted(frame, tenant, params)) is not None]
    rules = [*own, refused_with_enough(frame, params.generous, 1), *used, *_evidence(frame, refused, params)]
    spender = max(refused, key=lambda tenant: refused[tenant])
    passed = (
        f"{len(own)} tenants kept within a bucket of their own; {spender} was refused {refused[spender]:,} times, and "
        "nobody else for it."
    )
    return verdict(NAME, rules, passed)


def _refused(frame: CostFrame, tenant: str) -> int:
    return sum(r.outcome in REFUSED and r.reason == TOKENS for r in frame.of_tenant(tenant))


def _not_wasted(frame: CostFrame, tenant: str, params: Params) -> Rule | None:
    """From its first request to the last that was refused: what it used against what its bucket held."""
    bucket, mine = frame.bucket_of(tenant), frame.of_tenant(tenant)
    if bucket is None:
        return None
    until = max(r.answered_ns for r in mine if r.outcome in REFUSED and r.reason == TOKENS)
    begin = min(r.due_ns for r in mine)
    held = bucket.burst + float(bucket.rate) * max(0, frame.frame.stalls.between(begin, until)) / NS_PER_S
    used = sum(r.tokens for r in mine if r.answered_ns <= until)
    sentence = f"{tenant}: used {used:,} of the {held:,.0f} tokens that its bucket held, and was refused all the same"
    names = [r.call for r in mine if r.outcome in REFUSED and r.reason == TOKENS]
    return at_least(tenant, "of its bucket used", used / held, params.wasted, "share", len(mine), sentence, names)


def _evidence(frame: CostFrame, refused: dict[str, int], params: Params) -> list[Rule]:
    most = max(refused.values(), default=0)
    spender = max(refused, key=lambda tenant: refused[tenant])
    others = sum(r.tokens > 0 for r in frame.requests if r.tenant != spender)
    return [
        enough("evidence", "refused for its tokens", most, params.refused, "requests of one tenant",
               "a tenant that asks for more than its bucket holds"),
        enough("evidence", "of other tenants", others, params.served, "runs that used tokens",
               "tenants that stay within their own buckets at the same time"),
    ]  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "rate and burst of cost for each tenant: nobody spends, or is refused for, another's",
    "arrivals that say what they used, a tenant that overspends, and others beside it",
    Params,
    judge,
)
