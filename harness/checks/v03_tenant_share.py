"""v03.tenant_share: one tenant floods its background queue, and another keeps the share that is kept for it.

The tenants named `ordinary` are protected. Burst against calm, as their own callers saw it:

    served share, refusals, mean latency     each moves by less than its margin

and, by what was under way at the dependencies and what waited:

    the flood never holds a slot that is kept for another     in flight <= limit - shares of the others
    its queue is its own                                      waiting <= its bound
    each call is charged to the credential that it came with  a header, or no tenant at all, is nobody's
    the limits hold as they stand                             not once a replica
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.caller_view import stays, submits
from harness.checks.capacity_frames import (
    BulkheadKey,
    Frame,
    bulkheads,
    by_bulkhead,
    frame_of,
    in_flight,
    limit_of,
    running_at,
    waits_of,
    within_limits,
)
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, none_of, verdict, withheld
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import THROTTLED
from harness.ledger.reader import Trial
from harness.measure.occupancy import levels
from harness.profile.base import Count, DurationNs, Part

NAME = "v03.tenant_share"
Points = Annotated[float, Field(gt=0, lt=100)]


class Params(Part):
    """served_down_pp, refusals_up_pp: margins in percentage points. latency_up: of the mean; left out, half of the
    longest service time. flooded: steps of the flooding tenants that must have waited or been shed, and with which it
    must have filled what it may use."""

    served_down_pp: Points = 1.0
    refusals_up_pp: Points = 1.0
    latency_up: DurationNs | None = None
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95
    flooded: Count = 50


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    calm, burst = frame.profile.phases.calm, frame.profile.phases.burst
    if not frame.evidence.has_arrivals:
        return withheld(
            NAME, "there are no arrivals, and shares are counted by what was under way at the dependencies",
            "let the layer under test call the stub's dependencies (`overload stub --dependencies-only`)",
        )  # fmt: skip
    if calm is None or burst is None or not frame.profile.ordinary:
        return withheld(
            NAME,
            "it needs phases calm and burst, and protected tenants",
            "`phases: {calm, burst}` and `ordinary: [...]`",
        )
    rules: list[Rule] = []
    margin = latency_margin(frame, params.latency_up)
    if margin is None:
        rules.append(enough("protected", "margin of the latency", 0, 1, "margins", "give `latency_up`"))
    for name in frame.profile.ordinary:
        rows = submits(frame, lambda run, name=name: run.tenant == name)  # type: ignore[misc]
        rules += stays(
            frame,
            name,
            rows,
            calm,
            burst,
            params.confidence,
            params.served_down_pp,
            params.refusals_up_pp,
            margin,
        )
    rules += [*_charged(frame), *_shares(frame), *_queues(frame), *within_limits(frame), *_evidence(frame, params)]
    names = ", ".join(frame.profile.ordinary[:5])
    passed = (
        f"{', '.join(_floods(frame)[:5])} filled its own queue and slots; {names} kept served share, refusals and "
        "latency, and every call was charged to its credential."
    )
    return verdict(NAME, rules, passed)


def latency_margin(frame: Frame, given_ns: int | None) -> float | None:
    """Half of the longest service time of the dependencies, if it was not given; None for a target of its own."""
    if given_ns is not None:
        return float(given_ns)
    if frame.profile.capacity is None or not frame.bundled:
        return None
    return max(dependency.service_time for dependency in frame.profile.capacity.dependencies.values()) / 2


def _floods(frame: Frame) -> list[str]:
    return [name for name in frame.profile.tenants if name not in frame.profile.ordinary]


def _caller(frame: Frame, row: Row) -> str | None:
    """The tenant whose credential opened the run."""
    run = frame.runs.get(str(row.get("run")))
    return run.tenant if run is not None else None


def _charged(frame: Frame) -> list[Rule]:
    """Arrivals and decisions name the tenant whose credential their run was opened with."""
    wrong: list[str] = []
    names: dict[str, None] = {}
    samples = 0
    rows = [*frame.evidence.arrivals, *(row for row in frame.evidence.decisions if row.get("run") is not None)]
    for row in rows:
        caller, named = _caller(frame, row), row.get("tenant")
        if caller is None or named is None:
            continue
        samples += 1
        if named != caller:
            wrong.append(f"{row.get('run')}/{row['step']}" if row.get("step") else str(row.get("run")))
            names[str(named)[:40]] = None
    shown = ", ".join(list(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    text = f"{len(set(wrong))} calls were charged to {shown}, not to the tenant whose credential they came with"
    return [none_of("identity", "charged to another", wrong, samples, "rows", text)]


def _shares(frame: Frame) -> list[Rule]:
    """A tenant's calls in flight, at most the limit less what is kept for the others."""
    capacity = frame.profile.capacity
    if capacity is None or not frame.bundled:
        return []
    rules = []
    for tenant in _floods(frame):
        classes = {group.traffic_class for group in frame.profile.tenants[tenant].runs}
        if classes & set(capacity.reserves):
            continue  # its class has slots of its own, which are no tenant's
        kept = sum(share.slots for name, share in capacity.shares.items() if name != tenant)
        for key, rows in sorted(by_bulkhead(frame).items()):
            mine = [row for row in rows if _caller(frame, row) == tenant]
            limit = limit_of(frame, key)
            if limit is None or not mine or not kept:
                continue
            peak, bound = in_flight(frame, mine).peak(), limit - kept
            subject = f"{tenant} at {key[0]} {key[1]}s"
            text = f"{subject}: {peak.most} calls in flight where {bound} may be: {kept} of {limit} are kept for others"
            named = running_at(frame, mine, peak.at_ns) if peak.most > bound else ()
            rules.append(at_most(subject, "calls in flight", peak.most, bound, "calls", len(mine), text, named))
    return rules


def _queues(frame: Frame) -> list[Rule]:
    """Steps of a flooding tenant that wait in a bulkhead's queue at once, at most its bound."""
    capacity = frame.profile.capacity
    if capacity is None or not frame.bundled:
        return []
    rules = []
    for tenant in _floods(frame):
        share = capacity.shares.get(tenant)
        bound = share.queue if share is not None else capacity.tenant_queue
        for key, spans in sorted(_waiting(frame, tenant).items()):
            begins, ends = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
            peak = levels(begins, ends).peak()
            subject = f"{tenant} at {key[0]} {key[1]}s"
            text = f"{subject}: {peak.most} steps waited at once where its queue holds {bound}"
            rules.append(at_most(subject, "steps waiting", peak.most, bound, "steps", len(spans), text))
    return rules


def _waiting(frame: Frame, tenant: str) -> dict[BulkheadKey, list[tuple[int, int]]]:
    mine = [step for step in frame.steps.values() if step.run in frame.runs and frame.runs[step.run].tenant == tenant]
    return {key: [(a, b) for a, b, _ in spans] for key, spans in waits_of(mine).items()}


def _evidence(frame: Frame, params: Params) -> list[Rule]:
    floods = _floods(frame)
    steps = [step for step in frame.steps.values() if step.run in frame.runs and frame.runs[step.run].tenant in floods]
    delayed = sum(step.decided("queued") is not None or step.outcome == THROTTLED for step in steps)
    shed = sum(step.outcome == THROTTLED for step in steps)
    shares = frame.profile.capacity.shares if frame.profile.capacity and frame.bundled else {}
    named = sum(name in shares and shares[name].slots > 0 for name in frame.profile.ordinary)
    rows = [row for row in frame.evidence.arrivals if row.get("tenant") is not None]
    rules = [
        enough("flood", "queued or shed", delayed, params.flooded, "steps", "a tenant that asks for more than it may"),
        enough("flood", "shed, its queue full", shed, 1, "steps", "a tenant that overflows its queue"),
        enough(
            "identity", "arrivals that name their tenant", len(rows), params.flooded, "arrivals", "the tenant header"
        ),
    ]
    if bulkheads(frame):
        rules.append(enough("shares", "protected tenants with slots", named, 1, "tenants", "`shares:` for `ordinary`"))
    return rules


CHECKS[NAME] = Check(
    NAME,
    "a tenant that floods its background queue takes nothing of the share that is kept for another",
    "phases calm and burst, protected tenants (`ordinary`) with shares, 270 of their calls in the burst",
    Params,
    judge,
)
