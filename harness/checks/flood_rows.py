"""What the checks of floods look at: requests of a tenant that floods, and of the others beside it.

A request is a run that its tenant asked for. It is served when it was opened and all that it submitted was served; how
long it took is from due to the last of these answers, by its caller's clock, less what the harness's own processes
stood still. One that ran out of time while the stub stood still for most of it is nobody's loss, and is left out; one
that was refused is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.capacity_frames import SUBMIT
from harness.checks.cost_rows import REFUSED, CostFrame, Request, stood_still
from harness.checks.rules import Rule, at_most, enough
from harness.ledger.outcomes import COALESCED, SERVED
from harness.ledger.stalls import stalls_on_the_way
from harness.profile.base import Count, Part

Share = Annotated[float, Field(ge=0, le=1)]


class Unmoved(Part):
    """lost: share of the others' requests that may not be served. slower: how many times their median time before the
    flood theirs in it may be. before, beside: requests of others that there must be before it, and in it."""

    lost: Share = 0.01
    slower: Annotated[float, Field(ge=1, le=100)] = 3.0
    before: Count = 10
    beside: Count = 40


@dataclass(frozen=True, slots=True)
class Asked:
    request: Request
    served: bool
    took_ns: int
    stood_still: bool
    """It was neither served nor refused: its time ran out while the stub stood still."""


def asked_of(costs: CostFrame, request: Request) -> Asked:
    view = costs.frame.runs.get(request.run) if request.run is not None else None
    submits = [row for row in view.calls if row.get("action") == SUBMIT] if view is not None else []
    served = bool(submits) and all(row.get("outcome") in (SERVED, COALESCED) for row in submits)
    last_ns = max([request.answered_ns, *(int(row.get("done_ns", 0)) for row in submits)])
    refused = any(outcome in REFUSED for outcome in (request.outcome, *(row.get("outcome") for row in submits)))
    still = not served and not refused and stood_still(costs, request.due_ns, last_ns)
    return Asked(request, served, stalls_on_the_way(costs.frame.trial).between(request.due_ns, last_ns), still)


def unmoved(costs: CostFrame, others: Sequence[str], from_ns: int, params: Unmoved) -> list[Rule]:
    """The others' requests that were due from the flood's beginning on, against those before it."""
    every = (asked_of(costs, request) for tenant in others for request in costs.of_tenant(tenant))
    asked = [one for one in every if not one.stood_still]
    before = [one for one in asked if one.request.due_ns < from_ns]
    beside = [one for one in asked if one.request.due_ns >= from_ns]
    return [
        _lost(beside, params),
        _slower(before, beside, params),
        enough("evidence", "of others before the flood", len(before), params.before, "requests",
               "tenants that begin before the flood does"),
        enough("evidence", "of others beside the flood", len(beside), params.beside, "requests",
               "tenants that go on while it lasts"),
    ]  # fmt: skip


def _lost(beside: Sequence[Asked], params: Unmoved) -> Rule:
    lost = [one.request.call for one in beside if not one.served]
    share = len(lost) / len(beside) if beside else 0.0
    who = ", ".join(dict.fromkeys(one.request.tenant for one in beside if not one.served))
    sentence = f"{len(lost)} of {len(beside)} requests of other tenants were not served while it lasted ({who})"
    return at_most("other tenants", "requests not served", share, params.lost, "share", len(beside), sentence, lost)


def _slower(before: Sequence[Asked], beside: Sequence[Asked], params: Unmoved) -> Rule:
    first, then = ([one.took_ns for one in some if one.served] for some in (before, beside))
    times = float(np.median(then)) / max(1.0, float(np.median(first))) if first and then else 0.0
    shown = [float(np.median(some)) / 1e6 if some else 0.0 for some in (then, first)]
    sentence = f"requests of other tenants took {shown[0]:,.0f} ms (median) where they took {shown[1]:,.0f} ms before"
    slowest = [one.request.call for one in sorted(beside, key=lambda one: -one.took_ns)]
    samples = len(then) if first else 0
    return at_most("other tenants", "slower", times, params.slower, "times", samples, sentence, slowest)
