"""cost.reconciled: admitted on a forecast, settled once on what was really used, however the run ended.

    once        each run that was opened is settled, exactly once, soon after it has finished, was cancelled, or its
                agent has vanished and its lease (or deadline) is over
    truly       each settlement is of the tokens that arrived for the run, and the balance after it is the bucket's
    in advance  what runs at once is reserved first: no bucket is overdrawn by more than a forecast may be wrong
    the first   no request is refused while its bucket holds enough: a forecast above it would refuse it for ever
    it learns   where a class costs a tenant the same again and again, the forecast comes to be that

Judged by what arrived; balances are replayed from it. It must never judge a forecast where costs are too uneven for
any forecast to be right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean, pstdev
from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.capacity_frames import CANCEL
from harness.checks.cost_rows import (
    REFUSED,
    SETTLED,
    TOKENS,
    CostFrame,
    Request,
    cost_frame,
    overdrawn,
    refused_with_enough,
)
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, verdict
from harness.checks.rulings import Breach, missing, never
from harness.checks.verdict import Verdict
from harness.ledger.reader import Trial
from harness.profile.base import Count, DurationNs, Part
from harness.profile.units import NS_PER_S

NAME = "cost.reconciled"
Share = Annotated[float, Field(ge=0, le=100)]


class Params(Part):
    """within: how long after its end a run may be unsettled. off: how far a balance may be from the one that is
    replayed, as a share of the burst. overrun, generous: as of cost.bucket_per_tenant. wrong: how far the later
    forecasts of a class may be from what it costs. even: spread of costs up to which a forecast is judged (standard
    deviation over mean). settled, crashed, cancelled, refused: runs of each kind that there must be; orders: the
    smallest and the largest cost must be so many times apart; alike: runs from which an error counts as persistent."""

    within: DurationNs = NS_PER_S
    off: Share = 0.01
    overrun: Share = 0.3
    generous: Annotated[float, Field(ge=1, le=100)] = 4.0
    wrong: Share = 0.25
    even: Share = 0.5
    settled: Count = 50
    crashed: Count = 5
    cancelled: Count = 5
    refused: Count = 1
    orders: Annotated[float, Field(ge=1)] = 1000.0
    alike: Count = 20


def judge(trial: Trial, params: Params) -> Verdict:
    frame = cost_frame(trial)
    if (absent := missing(NAME, frame.frame.evidence, "decisions", "arrivals")) is not None:
        return absent
    if frame.cost is None or not frame.rows:
        return rules.withheld(
            NAME, "nobody counted what the runs cost", "`capacity.cost`, and a layer that tells of it"
        )
    over = [rule for tenant in frame.tenants if (rule := overdrawn(frame, tenant, params.overrun)) is not None]
    found = [
        *_settled(trial, frame, params),
        *_true(frame, params),
        *over,
        refused_with_enough(frame, params.generous, 0),
        *_learned(frame, params),
        *_evidence(frame, params),
    ]
    settled = [r for r in frame.requests if r.settled]
    passed = (
        f"{len(settled)} runs were settled, each once and at what arrived for it: "
        f"{sum(gone(frame, r) for r in settled)} whose agent had vanished and "
        f"{sum(_was_cancelled(frame, r) for r in settled)} that were cancelled among them."
    )
    return verdict(NAME, found, passed)


def gone(frame: CostFrame, request: Request) -> bool:
    """Its agent vanished: nobody finished or cancelled it."""
    return request.run is not None and request.closed_ns is None


def _was_cancelled(frame: CostFrame, request: Request) -> bool:
    view = frame.frame.runs.get(request.run or "")
    return view is not None and bool(view.told(CANCEL))


def _due_ns(frame: CostFrame, request: Request) -> int | None:
    """When it had to be settled at the latest; None: nobody can know."""
    if request.closed_ns is not None:
        return max(request.closed_ns, request.last_ns)
    if frame.cost is not None and frame.cost.lease is not None:
        return request.last_ns + frame.cost.lease
    view = frame.frame.runs.get(request.run or "")
    deadline = (view.opened or {}).get("deadline_ns") if view is not None else None
    return max(int(deadline), request.last_ns) if deadline is not None else None


def _settled(trial: Trial, frame: CostFrame, params: Params) -> Iterator[Rule]:
    ended_ns = int((trial.manifest.get("ended") or {}).get("at_ns") or 0)
    never_, late, twice = list[Breach](), list[Breach](), list[Breach]()
    seen = 0
    for request in frame.requests:
        due_ns = _due_ns(frame, request) if request.run is not None else None
        if due_ns is None:
            continue
        how = "its agent vanished" if gone(frame, request) else "it was closed"
        seen += 1
        if len(request.settled) > 1:
            twice.append((str(request.run), f"{len(request.settled)} times"))
        if not request.settled:
            if due_ns + params.within <= ended_ns or request.closed_ns is not None:
                never_.append((str(request.run), f"{how}, {request.tokens:,} tokens used"))
        elif int(request.settled[0]["t_ns"]) > due_ns + params.within:
            over_ms = (int(request.settled[0]["t_ns"]) - due_ns) / 1e6
            late.append((str(request.run), f"{over_ms:.0f} ms after {how}"))
    add = "more runs"
    yield never("runs", "were never settled", never_, seen, params.settled, add, "runs")
    yield never("runs", "were settled late", late, seen, 0, add, "runs")
    yield never("runs", "were settled more than once", twice, seen, 0, add, "runs")


def _true(frame: CostFrame, params: Params) -> Iterator[Rule]:
    other = [
        (str(r.run), f"settled at {r.settled[0].get('actual')}, {r.tokens} arrived")
        for r in frame.requests
        if r.settled and int(r.settled[0].get("actual") or 0) != r.tokens
    ]
    yield never("settlements", "were not of what arrived", other, sum(bool(r.settled) for r in frame.requests), 1,
                "more runs", "runs")  # fmt: skip
    for tenant in frame.tenants:
        if (rule := _balance(frame, tenant, params)) is not None:
            yield rule


def _balance(frame: CostFrame, tenant: str, params: Params) -> Rule | None:
    """The bucket replayed: charged at each settlement with what arrived for the run."""
    bucket = frame.bucket_of(tenant)
    rows = [row for row in frame.rows if row.get("tenant") == tenant and row.get("balance") is not None]
    if bucket is None or not rows:
        return None
    level, last_ns, worst, which = float(bucket.burst), 0, 0.0, ""
    for row in rows:
        now_ns = int(row["t_ns"])
        level = min(float(bucket.burst), level + float(bucket.rate) * (now_ns - last_ns) / NS_PER_S)
        last_ns = now_ns
        request = frame.by_run.get(str(row.get("run")))
        if row.get("outcome") == SETTLED and request is not None:
            level -= request.tokens
        if abs(level - float(row["balance"])) > worst:
            worst, which = abs(level - float(row["balance"])), str(row.get("run") or row.get("request"))
    sentence = f"{tenant}: its balance is {worst:,.0f} tokens from what it used"
    return at_most(
        tenant, "balance off", worst / bucket.burst, params.off, "of the burst", len(rows), sentence, [which]
    )


def _learned(frame: CostFrame, params: Params) -> Iterator[Rule]:
    judged = 0
    for (tenant, request_class), runs in _alike(frame).items():
        if len(runs) < params.alike:
            continue
        actual = [r.tokens for r in runs]
        if pstdev(actual) > params.even * fmean(actual):
            continue
        judged += 1
        later = runs[2 * len(runs) // 3 :]
        forecast = fmean(float((r.admitted or {}).get("forecast") or 0) for r in later)
        used = fmean(r.tokens for r in later)
        sentence = (
            f"{tenant}: the later forecasts of {request_class} are {forecast:,.0f} tokens where {used:,.0f} are used"
        )
        names = [str(r.run) for r in later]
        yield at_most(tenant, f"error of the later forecasts, {request_class}", abs(forecast / used - 1), params.wrong,
                      "of what is used", len(later), sentence, names)  # fmt: skip
    yield rules.enough("evidence", "that cost the same again and again", judged, 1, "classes of a tenant",
                       f"{params.alike} runs of one class whose cost hardly varies")  # fmt: skip


def _alike(frame: CostFrame) -> dict[tuple[str, str], list[Request]]:
    """Runs that did what they set out to do, by tenant and class, in order; those cut off cost less than their like.

    Where a delegation is claimed at a price of its own, a forecast is not of the whole tree: such runs say nothing.
    """
    capacity = frame.frame.profile.capacity
    priced = capacity is not None and bool(capacity.envelope.delegate_cost)
    found: dict[tuple[str, str], list[Request]] = defaultdict(list)
    for request in frame.requests:
        whole = request.closed_ns is not None and not _was_cancelled(frame, request)
        delegates = request.group is not None and any(True for _ in request.group.sub_agents())
        if whole and request.tokens and request.admitted is not None and not (priced and delegates):
            found[request.tenant, request.request_class or ""].append(request)
    return found


def _evidence(frame: CostFrame, params: Params) -> list[Rule]:
    opened = [r for r in frame.requests if r.run is not None]
    costs = [r.tokens for r in opened if r.tokens]
    apart = max(costs) / min(costs) if costs else 0.0
    refused = sum(r.outcome in REFUSED and r.reason == TOKENS for r in frame.requests)
    crashed, cancelled = sum(gone(frame, r) for r in opened), sum(_was_cancelled(frame, r) for r in opened)
    return [
        rules.enough("evidence", "vanished", crashed, params.crashed, "agents", "runs with `crash_after`"),
        rules.enough("evidence", "cancelled", cancelled, params.cancelled, "runs", "runs with `cancel_after`"),
        rules.enough("evidence", "refused for tokens", refused, params.refused, "requests",
                     "runs at once that ask for more than their bucket"),
        rules.enough("evidence", "between the smallest and the largest cost", int(apart), int(params.orders), "times",
                     "costs that spread, such as a lognormal `usage` with sigma 2.3"),
    ]  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "admitted on a forecast, settled once on what was used, whatever ended the run; the next forecast learns",
    "arrivals that say what they used, and settlements of runs that finished, crashed and were cancelled",
    Params,
    judge,
)
