"""What the checks of cost look at: what each run asked for, what reached the dependencies for it, how it was settled.

Tokens are counted from the arrivals, and belong to the tenant whose credential opened the run; a sub-agent's to the run
that its tenant opened. Forecasts, balances and settlements are the layer's own words (decisions of kind `cost`): they
are held against the arrivals, never believed instead of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.checks import capacity_frames
from harness.checks.capacity_frames import CANCEL, FINISH, OPEN_RUN, Frame
from harness.checks.rules import Rule, at_most
from harness.checks.rulings import Breach, never
from harness.ledger.evidence import Row
from harness.ledger.outcomes import BUDGET_EXHAUSTED, SERVED, THROTTLED
from harness.ledger.reader import Trial
from harness.profile.capacity import RunGroup
from harness.profile.cost import Bucket, Cost
from harness.profile.cost_describe import used_by
from harness.profile.units import NS_PER_S

KIND = "cost"
ADMITTED, SETTLED, QUEUED = "admitted", "settled", "queued"
SESSIONS, TOKENS, MEMORY, TOOLS = "sessions", "tokens", "memory", "tools"
POOLS = (SESSIONS, TOKENS, MEMORY, TOOLS)
REFUSED = (THROTTLED, BUDGET_EXHAUSTED)


@dataclass(slots=True)
class Request:
    """One run that a tenant asked for (sub-agents apart). run: None if it was not opened. group: None if it cannot be
    known. closing_ns: when its caller asked to close it; closed_ns: when that was answered. used: (when, tokens)
    of its arrivals, its sub-agents' included. admitted, settled: the layer's rows."""

    call: str
    tenant: str
    group: RunGroup | None
    outcome: str
    reason: str | None
    due_ns: int
    answered_ns: int
    run: str | None = None
    closing_ns: int | None = None
    closed_ns: int | None = None
    used: list[tuple[int, int]] = field(default_factory=list)
    admitted: Row | None = None
    settled: list[Row] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.used)

    @property
    def request_class(self) -> str | None:
        """As its group has it; None: not known."""
        return None if self.group is None else self.group.request_class or "chat_turn"

    @property
    def last_ns(self) -> int:
        """The last that was heard of it."""
        return max([self.answered_ns, self.closed_ns or 0, *(at for at, _ in self.used)])


@dataclass(frozen=True, slots=True)
class CostFrame:
    """cost: of the profile, at the trial's scale; None: it describes none. Of a target of its own it is what its
    operator says that it keeps: nothing else can say it. rows: decisions of kind `cost`, in order."""

    frame: Frame
    cost: Cost | None
    requests: list[Request]
    rows: list[Row]
    by_run: dict[str, Request]

    def bucket_of(self, tenant: str) -> Bucket | None:
        return self.cost.bucket_of(tenant) if self.cost is not None else None

    def of_tenant(self, tenant: str) -> list[Request]:
        return [request for request in self.requests if request.tenant == tenant]

    @property
    def tenants(self) -> list[str]:
        return list(dict.fromkeys(request.tenant for request in self.requests))


def cost_frame(trial: Trial) -> CostFrame:
    """Read once a trial. Raises LedgerError on a damaged file."""
    if "cost" not in trial.memo:
        trial.memo["cost"] = _read(capacity_frames.frame_of(trial))
    found: CostFrame = trial.memo["cost"]
    return found


def _read(frame: Frame) -> CostFrame:
    cost = frame.profile.capacity.cost if frame.profile.capacity is not None else None
    opens = [row for row in frame.calls if row.get("action") == OPEN_RUN and row.get("parent") is None]
    told = {
        ".".join(str(row["request"]).split(".")[:2]): str(row.get("request_class"))
        for row in frame.of_kind(KIND, "refused") if row.get("request") is not None
    }  # fmt: skip
    requests: list[Request] = []
    by_run: dict[str, Request] = {}
    for row in opens:
        request = _request(frame, row, told.get(str(row.get("call"))))
        requests.append(request)
        if request.run is not None:
            by_run[request.run] = request
    for row in frame.calls:
        closed = by_run.get(str(row.get("run_id"))) if row.get("action") in (CANCEL, FINISH) else None
        if closed is not None and row.get("outcome") == SERVED:
            closed.closed_ns = min(int(row["done_ns"]), closed.closed_ns or int(row["done_ns"]))
            sent = row.get("sent_ns")
            if isinstance(sent, int) and sent >= 0:
                closed.closing_ns = min(sent, closed.closing_ns or sent)
    for row in frame.evidence.arrivals:
        tokens, used_by_run = row.get("tokens"), by_run.get(frame.root(str(row.get("run"))))
        if used_by_run is not None and isinstance(tokens, int) and tokens > 0:
            used_by_run.used.append((int(row["ended_ns"]), tokens))
    rows = frame.of_kind(KIND)
    for row in rows:
        mine = by_run.get(str(row.get("run")))
        if mine is not None and row.get("outcome") == ADMITTED:
            mine.admitted = mine.admitted or row
        elif mine is not None and row.get("outcome") == SETTLED:
            mine.settled.append(row)
    return CostFrame(frame, cost, requests, rows, by_run)


def _request(frame: Frame, row: Row, told_class: str | None) -> Request:
    """told_class: of a request that was refused, as the layer says: which of its tenant's groups it is of."""
    tenant, run = str(row.get("tenant")), row.get("run_id")
    view = frame.runs.get(str(run)) if run else None
    group = view.group if view is not None else None
    if view is None and tenant in frame.profile.tenants:
        groups = frame.profile.tenants[tenant].runs
        alike = [one for one in groups if told_class in (None, one.request_class or "chat_turn")]
        if len({one.request_class for one in alike}) == 1:
            group = alike[0]
    return Request(
        call=str(row.get("call")),
        tenant=tenant,
        group=group,
        outcome=str(row.get("outcome")),
        reason=str(row["reason"]) if row.get("reason") is not None else None,
        due_ns=int(row.get("due_ns", 0)),
        answered_ns=int(row.get("done_ns", 0)),
        run=str(run) if run else None,
    )


def stood_still(frame: CostFrame, from_ns: int, to_ns: int) -> bool:
    """Whether the stub stood still for most of a time: a deadline or a timeout that passed in it says nothing."""
    return 2 * frame.frame.stalls.stalled_ns(from_ns, to_ns) > to_ns - from_ns


def level_of(bucket: Bucket, spent: Iterable[tuple[int, int]], at_ns: int | None = None) -> tuple[float, int]:
    """(least level, when) of a bucket that starts full and is charged (when, tokens), in order of time; with `at_ns`
    its level then.

        level <- min(burst, level + rate * dt) - tokens                          [tokens]
    """
    level, last_ns = float(bucket.burst), 0
    least, when = level, 0
    rate = float(bucket.rate) / NS_PER_S
    for now_ns, tokens in sorted(spent):
        if at_ns is not None and now_ns > at_ns:
            break
        level = min(float(bucket.burst), level + rate * (now_ns - last_ns)) - tokens
        last_ns = now_ns
        if level < least:
            least, when = level, now_ns
    if at_ns is not None:
        return min(float(bucket.burst), level + rate * max(0, at_ns - last_ns)), at_ns
    return least, when


def overdrawn(frame: CostFrame, tenant: str, overrun: float) -> Rule | None:
    """What arrived of a tenant against its own bucket: how far it was overdrawn at most, as a share of the burst. A
    forecast may be wrong by some; `overrun` says how much. None: it has no bucket."""
    bucket = frame.bucket_of(tenant)
    mine = [use for request in frame.of_tenant(tenant) for use in request.used]
    if bucket is None or not mine:
        return None
    least, at_ns = level_of(bucket, mine)
    share = max(0.0, -least) / bucket.burst
    sentence = (
        f"{tenant}: used {bucket.burst - least:,.0f} tokens of a bucket of {bucket.burst:,} "
        f"by {at_ns / NS_PER_S:.2f} s, refilled by {float(bucket.rate):,.6g}/s"
    )
    runs = [request.run or "" for request in frame.of_tenant(tenant) if any(at <= at_ns for at, _ in request.used)]
    return at_most(tenant, "used beyond its bucket", share, overrun, "of the burst", len(mine), sentence, runs[::-1])


def refused_with_enough(frame: CostFrame, generous: float, least: int) -> Rule:
    """No request is refused for its tokens while its tenant's own bucket, by what arrived, held enough of them:
    `generous` times what each of the runs that are open and the request itself use, or nine tenths of all it can hold.

    Each run is charged when it began, as a perfect forecast would.
    """
    breaches: list[Breach] = []
    seen = 0
    for tenant in frame.tenants:
        bucket, mine = frame.bucket_of(tenant), frame.of_tenant(tenant)
        if bucket is None:
            continue
        typical = _typical(frame, tenant)
        charged = [(r.answered_ns, r.tokens) for r in mine if r.run is not None and r.tokens]
        for request in mine:
            if request.reason != TOKENS or request.outcome not in REFUSED:
                continue
            seen += 1
            at_ns = request.answered_ns
            still_open = sum(r.run is not None and r.answered_ns <= at_ns < r.last_ns for r in mine)
            needed = min(0.9 * bucket.burst, generous * typical * (1 + still_open))
            held, _ = level_of(bucket, charged, at_ns)
            if held >= needed and typical <= bucket.burst:
                breaches.append(
                    (request.call, f"{tenant} had {held:,.0f} tokens where about {typical:,.0f} were needed")
                )
    return never("requests", "were refused though their own bucket held enough", breaches, seen, least,
                 "a tenant that asks for more than its bucket holds", "requests")  # fmt: skip


def _typical(frame: CostFrame, tenant: str) -> float:
    """Tokens that the most expensive kind of run of this tenant uses on average, as the profile says."""
    told = frame.frame.profile.tenants.get(tenant)
    return max((used_by(group) for group in told.runs), default=0.0) if told is not None else 0.0


def refusals_by_pool(frame: CostFrame) -> dict[str, int]:
    """Requests that their callers saw refused, by the pool that is given as the reason."""
    found: dict[str, int] = defaultdict(int)
    for request in frame.requests:
        if request.outcome in REFUSED and request.reason in POOLS:
            found[str(request.reason)] += 1
    return found
