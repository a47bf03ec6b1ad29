"""What the controller and the dependencies write down: one event for every decision, one for every arrival and effect.

The checks judge by arrivals and effects (what really reached a dependency), and hold decisions against them. Rows are
JSON objects; a key without a value is left out, times are integer ns since the trial began. Named tuples: three of them
are made for every step, and a frozen dataclass takes several times as long to make.
"""

from __future__ import annotations

from typing import Any, NamedTuple

WILL_RETRY, NEEDS_PERSON, STOPPED, DONE = "will_retry", "needs_person", "stopped", "done"
"""What the user of the run is shown (`user_status`)."""


class Decision(NamedTuple):
    """One thing that the controller decided. kind, and the outcomes that it may have:

    run      opened | done | budget_exhausted | expired | cancelled | needs_person | failed (the run's own end)
    batch    admitted | budget_exhausted | expired | cancelled | ...  (the whole batch, before any of its steps)
    step     queued (interim) | admitted (interim: it starts) | a terminal outcome of a call, once a step
    retry    scheduled | denied (with the reason)
    readback committed | not_committed | unknown
    circuit  opened | half_open | closed (run and step are absent)
    lend     lent | taken_back (of a reserve)
    limit    raised | lowered (adaptive)
    late     accepted | discarded (a result that came after cancellation)
    """

    t_ns: int
    kind: str
    outcome: str
    reason: str | None = None
    run: str | None = None
    parent_run: str | None = None
    tenant: str | None = None
    traffic_class: str | None = None
    task_class: str | None = None
    release: str | None = None
    dependency: str | None = None
    operation: str | None = None
    tool: str | None = None
    batch: str | None = None
    step: str | None = None
    round: int | None = None
    attempt: int | None = None
    owner: str | None = None
    queue_wait_ns: int | None = None
    service_ns: int | None = None
    delay_ns: int | None = None
    retry_after: str | None = None
    deadline_ns: int | None = None
    remaining_ns: int | None = None
    remaining_attempts: int | None = None
    remaining_budget: int | None = None
    remaining_retry_tokens: int | None = None
    limit: int | None = None
    in_use: int | None = None
    total_in_use: int | None = None
    queue: int | None = None
    circuit: str | None = None
    idempotency_key: str | None = None
    coalesced_with: str | None = None
    request: str | None = None
    user_status: str | None = None


class CostDecision(NamedTuple):
    """One thing that was decided about the cost of a run (kind `cost`); the figures are those just after it. Outcomes:

    queued    (interim) the run waits for a session of its size class
    admitted  its claims are made: `forecast` is reserved of the tenant's bucket
    refused   nothing is claimed. reason: the pool that refused it (sessions, tokens, memory, tools), or `deadline`
    settled   `actual` is charged, and what was claimed is back. reason: the outcome of the run

    balance: of the tenant's bucket, reservations not counted; below zero: a debt. reserved: of that bucket, by all open
    runs. sessions, memory, tools: in use, of all tenants. queue, queue_age_ns: runs that wait for a session, and how
    long the oldest has. Absent: the tenant has no bucket.
    """

    t_ns: int
    outcome: str
    kind: str = "cost"
    reason: str | None = None
    run: str | None = None
    tenant: str | None = None
    request_class: str | None = None
    size_class: str | None = None
    forecast: int | None = None
    actual: int | None = None
    balance: float | None = None
    reserved: int | None = None
    sessions: int | None = None
    memory: int | None = None
    tools: int | None = None
    queue: int | None = None
    queue_age_ns: int | None = None
    queue_wait_ns: int | None = None
    retry_after_ns: int | None = None
    request: str | None = None


class Arrival(NamedTuple):
    """One request that reached a dependency, written when it has ended. t_ns: when it arrived; started_ns: when a
    worker took it. layer: who sent this attempt (`controller`, or the name of a layer that should not retry). attempt:
    as its headers say. status: as answered; 0 if no answer was given (the caller left, or a hang). date: the answer's
    own Date, where it carried a Retry-After. tokens, bytes: what the call used, as its answer says. via: as a proxy on
    the way put it into the header of that name."""

    t_ns: int
    started_ns: int
    ended_ns: int
    dependency: str
    operation: str
    status: int
    run: str | None = None
    tenant: str | None = None
    traffic_class: str | None = None
    tool: str | None = None
    step: str | None = None
    round: int | None = None
    attempt: int | None = None
    owner: str | None = None
    layer: str | None = None
    idempotency_key: str | None = None
    deadline_ns: int | None = None
    probe: bool | None = None
    readback: bool | None = None
    retry_after: str | None = None
    fault: str | None = None
    date: str | None = None
    tokens: int | None = None
    bytes: int | None = None
    via: str | None = None


class Effect(NamedTuple):
    """One write that was committed. logical: `<run>/<step>`, whatever the attempt or the key."""

    t_ns: int
    dependency: str
    logical: str
    run: str | None = None
    step: str | None = None
    tenant: str | None = None
    attempt: int | None = None
    idempotency_key: str | None = None


def row(record: Decision | CostDecision | Arrival | Effect) -> dict[str, Any]:
    """The record as a row of the ledger. `part` tells the controller's decisions from the shared service's."""
    values = {name: value for name, value in zip(record._fields, record, strict=True) if value is not None}
    if type(record) is Decision or type(record) is CostDecision:
        values["part"] = "capacity"
    return values
