"""flood.cheap: ten thousand legitimate small requests of one tenant are that tenant's problem alone.

No request of it is large, none is a retry, each has its right to be there; together they are more than it has paid for.

    others     lose nothing and wait no longer than before it began
    itself     is served what its own bucket pays for, and no more
    told       what is refused of it is refused in typed words

Judged by what the callers saw and by the tokens that arrived. The flood is the tenant with the most requests.
"""

from __future__ import annotations

from collections import Counter

from harness.checks.cost_rows import REFUSED, CostFrame, cost_frame, overdrawn
from harness.checks.flood_rows import Share, Unmoved, asked_of, unmoved
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_least, enough, verdict, withheld
from harness.checks.rulings import Breach, missing, never
from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.profile.base import Count
from harness.profile.units import NS_PER_S

NAME = "flood.cheap"


class Params(Unmoved):
    """requests: of the flood, at least (a night of ten thousand, scaled). refused: of these, at least. overrun: how far
    it may overdraw its bucket, as a share of the burst. paid: what it must be served of what its bucket held."""

    requests: Count = 400
    refused: Count = 50
    overrun: Share = 0.3
    paid: Share = 0.6


def judge(trial: Trial, params: Params) -> Verdict:
    costs = cost_frame(trial)
    absent = missing(NAME, costs.frame.evidence, "arrivals")
    if absent is not None:
        return absent
    counts = Counter(request.tenant for request in costs.requests)
    flood = max(counts, key=lambda tenant: counts[tenant], default="")
    others = [tenant for tenant in counts if tenant != flood]
    if costs.bucket_of(flood) is None or not others:
        return withheld(NAME, "there is no tenant with a bucket and many requests beside others",
                        "`capacity.cost`, and a tenant with `runs` at a high rate")  # fmt: skip
    mine = costs.of_tenant(flood)
    if len(mine) < params.requests:
        return withheld(NAME, f"no tenant has {params.requests:,} requests or more: there is no flood",
                        "a tenant with more requests than its bucket pays for")  # fmt: skip
    from_ns = min(request.due_ns for request in mine)
    refused = [request for request in mine if request.outcome in REFUSED]
    rules = [
        *unmoved(costs, others, from_ns, params),
        *([own] if (own := overdrawn(costs, flood, params.overrun)) is not None else []),
        _paid(costs, flood, params, len(refused)),
        _told(costs, flood),
        enough("evidence", "refused of the flood", len(refused), params.refused, "requests",
               "more requests than its bucket pays for"),
    ]  # fmt: skip
    beside = sum(counts[tenant] for tenant in others)
    passed = (
        f"{len(mine):,} small requests of {flood}, {len(refused):,} of them refused to it alone: the {beside:,} of "
        f"{', '.join(others)} were served as before."
    )
    return verdict(NAME, rules, passed)


def _paid(costs: CostFrame, flood: str, params: Params, refused: int) -> Rule:
    """Only of a tenant that was refused something: another may just not have asked for more."""
    bucket, mine = costs.bucket_of(flood), costs.of_tenant(flood)
    begin, until = min(r.due_ns for r in mine), max(r.answered_ns for r in mine)
    lived_ns = costs.frame.stalls.between(begin, until)
    held = (bucket.burst + float(bucket.rate) * lived_ns / NS_PER_S) if bucket is not None else 0.0
    used = sum(r.tokens for r in mine)
    sentence = f"{flood}: was served {used:,} of the {held:,.0f} tokens that its bucket held"
    share = used / held if held else 0.0
    return at_least(flood, "served of what it paid for", share, params.paid, "share", refused, sentence)


def _told(costs: CostFrame, flood: str) -> Rule:
    """Whatever became of its requests was served or a typed refusal."""
    every = (asked_of(costs, request) for request in costs.of_tenant(flood))
    mine = [one for one in every if not one.stood_still]
    wrong: list[Breach] = [
        (one.request.call, one.request.outcome)
        for one in mine
        if one.request.run is None and one.request.outcome not in (*REFUSED, "expired")
    ]
    add = "a quieter machine, or requests of the flood during which the service does not stand still"
    return never("requests", "of the flood were neither served nor refused", wrong, len(mine), 1, add, "requests")


CHECKS[NAME] = Check(
    NAME,
    "a flood of small requests of one tenant is that tenant's problem alone",
    "arrivals that say what they used, a tenant with many small requests, and others before and beside it",
    Params,
    judge,
)
