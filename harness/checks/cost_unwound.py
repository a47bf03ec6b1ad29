"""cost.unwound: a request that is refused at any step gives back all that it had claimed before.

    refused  requests are turned away at each of the four pools: sessions, tokens, memory writes, tool calls
    whole    then runs that together claim every pool to its last unit begin (in the phase `recovery`): each is admitted
    nothing  and when all has ended, nothing is held

Judged by what the callers were told and by what then arrived: a pool that lost a unit to each refusal cannot admit
those runs. A pool that was in use when they asked proves nothing: on a machine that stood still an earlier run may not
have ended by then, or may have slipped in where it was to be refused. Nor does one whose time ran out while the stub
stood still. It must never pass because nothing was refused,
or because the last runs asked for little.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.checks.cost_rows import (
    ADMITTED,
    POOLS,
    REFUSED,
    TOKENS,
    CostFrame,
    Request,
    cost_frame,
    level_of,
    refusals_by_pool,
    stood_still,
)
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_most, enough, verdict, withheld
from harness.checks.rulings import Breach, missing, never
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import SERVED
from harness.ledger.reader import Trial
from harness.profile.base import Count, Part
from harness.profile.model import Window

NAME = "cost.unwound"
_WHOLE = 0.999
_HELD = {"sessions": "sessions", "memory": "memory", "tools": "tools", "reserved_cost": "reserved tokens"}


class Params(Part):
    """refusals: requests that must have been refused in all; each: at each of the four steps. whole: runs that must
    have asked for every pool afterwards."""

    refusals: Count = 1000
    each: Count = 200
    whole: Count = 4


def judge(trial: Trial, params: Params) -> Verdict:
    frame = cost_frame(trial)
    if (absent := missing(NAME, frame.frame.evidence, "arrivals")) is not None:
        return absent
    after = frame.frame.profile.phases.recovery
    if frame.cost is None or after is None:
        what = "the profile describes no pools, or no phase `recovery` in which they are claimed to the last unit"
        return withheld(NAME, what, "`capacity.cost` with `pools`, and `phases.recovery`")
    refused = refusals_by_pool(frame)
    last = [r for r in frame.requests if after.from_ns <= r.due_ns < after.to_ns]
    found = [_whole(frame, last, params), *_nothing_held(trial), *_evidence(frame, refused, after, params)]
    told = ", ".join(f"{refused.get(pool, 0):,} at {pool}" for pool in POOLS)
    passed = (
        f"{sum(refused.values()):,} requests were refused ({told}); then {len(last)} runs got the whole of every pool."
    )
    return verdict(NAME, found, passed)


def _whole(frame: CostFrame, last: list[Request], params: Params) -> Rule:
    """Each of the last runs was opened, and what it did arrived. One that proves nothing leaves it open."""
    breaches: list[Breach] = []
    first_ns = min((r.due_ns for r in last), default=0)
    earlier = [r for r in frame.requests if r.run is not None and r.due_ns < first_ns]
    judged = [r for r in last if not _proves_nothing(frame, earlier, r)]
    for request in judged:
        if request.outcome != SERVED:
            breaches.append((request.call, f"{request.tenant}: {request.outcome}, {request.reason}"))
        elif not frame.frame.of_run.get(request.run or ""):
            breaches.append((request.call, f"{request.tenant}: opened, and nothing of it arrived"))
    add = "runs in the phase `recovery` that claim all of each pool"
    what = "were refused though every pool should have been whole"
    return never("pools", what, breaches, len(judged), max(params.whole, len(last)), add, "runs")


def _proves_nothing(frame: CostFrame, earlier: list[Request], request: Request) -> bool:
    """It was refused what was in use, or its time ran out while the stub stood still."""
    if request.outcome in REFUSED:
        return _in_use(frame, earlier, request)
    arrived = bool(frame.frame.of_run.get(request.run or ""))
    return not arrived and stood_still(frame, request.due_ns, request.last_ns)


def _in_use(frame: CostFrame, earlier: list[Request], request: Request) -> bool:
    """Whether, by what callers saw and what arrived, the pool that refused it was not whole: for its tokens its own
    bucket, for the others any run that had not ended."""
    if request.reason != TOKENS:
        return any(r.last_ns > request.due_ns for r in earlier)
    bucket = frame.bucket_of(request.tenant)
    spent = [use for r in earlier if r.tenant == request.tenant for use in r.used]
    return bucket is not None and level_of(bucket, spent, request.answered_ns)[0] < _WHOLE * bucket.burst


def _nothing_held(trial: Trial) -> Iterator[Rule]:
    left = (trial.manifest.get("ended") or {}).get("leftovers")
    for key, name in _HELD.items():
        count = left.get(key) if isinstance(left, dict) else None
        if isinstance(count, int):
            yield at_most(name, "still held at the end", count, 0, name, 1, f"{count} {name} still held at the end")


def _evidence(frame: CostFrame, refused: dict[str, int], after: Window, params: Params) -> Iterator[Rule]:
    yield enough("evidence", "refused", sum(refused.values()), params.refusals, "requests", "more requests")
    for pool in POOLS:
        add = f"requests that have all but {pool}"
        yield enough("evidence", f"refused at {pool}", refused.get(pool, 0), params.each, "requests", add)
    cost = frame.cost
    rows = [
        row for row in frame.rows if row.get("outcome") == ADMITTED and after.from_ns <= int(row["t_ns"]) < after.to_ns
    ]
    if cost is None or not rows:
        return
    limits = {"sessions": cost.pools.sessions, "memory": cost.pools.memory, "tools": cost.pools.tools}
    for pool, limit in limits.items():
        if limit is not None:
            most = max(int(row.get(pool) or 0) for row in rows)
            yield enough(
                "evidence", f"{pool} claimed at once afterwards", most, limit, pool, f"runs that claim all {pool}"
            )
    drained = {r.tenant for r in frame.requests if r.outcome in REFUSED and r.reason in POOLS and r.reason != TOKENS}
    for tenant in sorted(drained):
        bucket = frame.bucket_of(tenant)
        if bucket is not None:
            most = max((int(row.get("reserved") or 0) for row in rows if row.get("tenant") == tenant), default=0)
            yield enough(tenant, "of its bucket claimed afterwards", most, bucket.burst, "tokens",
                         "a run of it that is forecast at its whole burst")  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "a request refused at any step gives back all it had claimed: after a thousand, every pool is whole",
    "refusals at sessions, tokens, memory and tools, and then runs that claim every pool to its last unit",
    Params,
    judge,
)
